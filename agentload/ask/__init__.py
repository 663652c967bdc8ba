"""Ask questions that are not timed, with the OpenAI SDK."""
