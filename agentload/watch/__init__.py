"""Scheduled comparisons: jobs, executions, history,
alarms, notices and files for real schedulers.
"""
