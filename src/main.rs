//! The command `swansong`: parses arguments and runs subcommands.

mod cli;
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
    Inject(cli::inject::Inject),
    Uninject(cli::uninject::Uninject),
    Explain(cli::explain::Explain),
    LintScript(cli::lint_script::LintScript),
    Webhook(Box<cli::webhook::Webhook>),
    Agent(Box<cli::agent::Agent>),
    /// Watch the devices through the driver's library, for the agent
    #[command(hide = true)]
    Dcmi(cli::dcmi::Dcmi),
    Doctor(Box<cli::doctor::Doctor>),
    Status(Box<cli::status::Status>),
    ClusterdConfig(cli::clusterd_config::ClusterdConfig),
    ImageCheck(cli::image_check::ImageCheck),
    ManagerPy(cli::manager_py::ManagerPy),
    Relay(Box<cli::relay::Relay>),
}

fn main() -> ExitCode {
    // TLS clients and servers use this provider. Only a second installation fails.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            // Exit status 2 means warnings here, unlike in clap.
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let result = match arguments.command {
        Command::Inject(inject) => inject.run(),
        Command::Uninject(uninject) => uninject.run(),
        Command::Explain(explain) => explain.run(),
        Command::LintScript(lint) => lint.run(),
        Command::Webhook(webhook) => webhook.run().map(|()| ExitCode::SUCCESS),
        Command::Agent(agent) => agent.run(),
        Command::Dcmi(dcmi) => dcmi.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Status(status) => status.run(),
        Command::ClusterdConfig(config) => config.run(),
        Command::ImageCheck(check) => check.run(),
        Command::ManagerPy(_) => cli::manager_py::ManagerPy::run(),
        Command::Relay(relay) => relay.run().map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("swansong: {}", cli::printable(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
