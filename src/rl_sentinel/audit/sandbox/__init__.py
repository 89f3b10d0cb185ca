"""Run audits in separate processes with limits on time and memory."""
