"""Run scheduled comparisons: jobs, executions, history, alarms, notices, scheduler files."""
