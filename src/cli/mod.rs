//! Subcommands, one per file.

pub(crate) mod agent;
pub(crate) mod clusterd_config;
pub(crate) mod dcmi;
pub(crate) mod doctor;
pub(crate) mod explain;
mod files;
pub(crate) mod image_check;
pub(crate) mod inject;
pub(crate) mod lint_script;
pub(crate) mod manager_py;
pub(crate) mod relay;
mod report_options;
mod signals;
pub(crate) mod status;
mod trainer_text;
pub(crate) mod uninject;
pub(crate) mod webhook;

pub(crate) use self::files::printable;
