//! The command `swansong`: arguments and wiring only.

mod commands;
mod logging;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Makes the dying checkpoint of Ascend NPU training jobs work on Kubernetes
#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Inject(commands::inject::Inject),
    Uninject(commands::uninject::Uninject),
    Explain(commands::explain::Explain),
    Webhook(Box<commands::webhook::Webhook>),
    Agent(Box<commands::agent::Agent>),
    /// Watch the devices through the driver's library, for the agent
    #[command(hide = true)]
    Dcmi(commands::dcmi::Dcmi),
    ClusterdConfig(commands::clusterd_config::ClusterdConfig),
    Relay(Box<commands::relay::Relay>),
}

fn main() -> ExitCode {
    // First of all: whatever speaks TLS later finds the one provider there. Only a second installation can fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            // Not clap's 2, which says "warnings" here.
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let result = match arguments.command {
        Command::Inject(inject) => inject.run(),
        Command::Uninject(uninject) => uninject.run(),
        Command::Explain(explain) => explain.run(),
        Command::Webhook(webhook) => webhook.run().map(|()| ExitCode::SUCCESS),
        Command::Agent(agent) => agent.run(),
        Command::Dcmi(dcmi) => dcmi.run(),
        Command::ClusterdConfig(config) => config.run(),
        Command::Relay(relay) => relay.run().map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("swansong: {error:#}");
            ExitCode::FAILURE
        }
    }
}
