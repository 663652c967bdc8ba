"""What a help text shows can be copied into a shell, and is understood."""

import shlex
from collections.abc import Iterator
from typing import Any

import typer

from agentload.cli._lazy import LazyGroup, help_text

ROOT = LazyGroup(package="agentload.cli", name="agentload", rich_markup_mode=None)
CONTEXT = typer.Context(ROOT, info_name="agentload", terminal_width=80)


def help_texts(group: LazyGroup, context: typer.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        yield command.get_help(inner)
        if isinstance(command, LazyGroup):
            yield from help_texts(command, inner)


def understood(
    words: list[str], group: LazyGroup = ROOT, context: typer.Context = CONTEXT
) -> dict[str, Any]:
    """Parse a command line as its verb does, without running it."""
    name, *rest = words
    command = group.get_command(context, name)
    if isinstance(command, LazyGroup):
        return understood(rest, command, typer.Context(command, info_name=name, parent=context))
    return command.make_context(name, rest, parent=context).params


def test_every_example_of_a_help_text_is_understood() -> None:
    paragraphs = [each.strip() for text in help_texts(ROOT, CONTEXT) for each in text.split("\n\n")]
    examples = [
        shlex.split(each.replace("\\\n", ""))
        for each in paragraphs
        if each.startswith("agentload ")
    ]
    assert len(examples) > 50
    for words in examples:
        assert understood(words[1 : words.index("|") if "|" in words else None]), words


def test_no_line_of_a_help_text_is_wider_than_a_terminal() -> None:
    wide = [
        line for text in help_texts(ROOT, CONTEXT) for line in text.splitlines() if len(line) > 80
    ]
    assert wide == []


def test_a_long_command_goes_on_as_a_shell_reads_it() -> None:
    said = help_text(
        'Do it.\n\n    agentload verb --first "a -b | c" --second '
        "a-long-value,and-another-one | rest -f - --and more\n"
    )
    folded = (
        '\b\n    agentload verb --first "a -b | c" \\\n      --second '
        "a-long-value,and-another-one | rest -f - --and more"
    )
    assert said == f"Do it.\n\n{folded}"


def test_an_indented_file_keeps_its_lines() -> None:
    assert (
        help_text("Hold jobs.\n\n    jobs:\n      nightly:\n\nMore\nof it.")
        == "Hold jobs.\n\n\b\n    jobs:\n      nightly:\n\nMore\nof it."
    )


def test_many_options_are_in_groups_and_few_are_not() -> None:
    assert headings("replay") == [
        "Arguments:",
        "Servers:",
        "Requests:",
        "Statistics:",
        "Load:",
        "Decision:",
        "Runs:",
        "Output:",
        "Options:",
    ]
    assert headings("doctor") == ["Options:"]


def headings(verb: str) -> list[str]:
    command = ROOT.get_command(CONTEXT, verb)
    lines = command.get_help(typer.Context(command, info_name=verb, parent=CONTEXT)).splitlines()
    return [line for line in lines if line.endswith(":") and not line.startswith(" ")]
