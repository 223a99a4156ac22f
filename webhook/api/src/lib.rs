//! Names and records that the webhook, the agent, the reset-config controller and the command line share.
