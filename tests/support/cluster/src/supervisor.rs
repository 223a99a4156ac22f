//! The process that starts a cluster, watches over it, and ends it.
//!
//! It runs as a child of the process that started the cluster and notices the parent's end by the end of its
//! standard input, which no way to die can prevent. Its own children ask the kernel to be killed
//! when it dies. What survives a supervisor that is killed are files and empty control groups;
//! the next cluster on the machine removes those.

use std::future::Future;

use serde::{Deserialize, Serialize};

use crate::Options;
use crate::control_plane::{self, ControlPlane};
use crate::network::Lease;
use crate::node::Node;
use crate::process::Program;
use crate::programs::Programs;
use crate::workdir::WorkDir;
use crate::{Error, Info, Tier, prerequisites, programs};

/// The one line that the supervisor prints for the library.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Announcement {
    /// The cluster is ready.
    Ready(Box<Info>),
    /// It could not be started.
    Failed(String),
}

/// Everything that has to be ended.
#[derive(Default)]
struct Parts {
    /// In the order they were started.
    programs: Vec<Program>,
    node: Option<Node>,
}

/// Runs a cluster until `stop` is done, or until one of its programs ends.
///
/// It must be polled on the main thread: the kernel ties the lives of its children to the thread
/// that starts them.
pub async fn run(
    options: &Options,
    ready: impl FnOnce(&Info),
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let mut stop = std::pin::pin!(stop);
    let missing = prerequisites::for_running(options.tier);
    if !missing.is_empty() {
        return Err(Error::Prerequisites(missing));
    }
    let tier = options.tier;
    let network_policies = options.network_policies;
    let building = tokio::task::spawn_blocking(move || {
        let mut programs = programs::ensure_with_progress(tier)?;
        if network_policies {
            programs.kube_router = Some(programs::ensure_kube_router()?);
        }
        Ok::<_, Error>(programs)
    });
    let programs = tokio::select! {
        built = building => built.map_err(|error| Error::io("build the programs")(error.into()))??,
        () = &mut stop => return Ok(()),
    };

    let lease = if tier == Tier::Node { Some(Lease::take()?) } else { None };
    let work = WorkDir::create()?;
    let mut parts = Parts::default();
    let outcome = tokio::select! {
        outcome = parts.start_and_watch(options, &work, &programs, lease.as_ref(), ready) => outcome,
        () = &mut stop => Ok(()),
    };
    let ended = parts.end().await;
    outcome.and(ended)
}

impl Parts {
    async fn start_and_watch(
        &mut self,
        options: &Options,
        work: &WorkDir,
        programs: &Programs,
        lease: Option<&Lease>,
        ready: impl FnOnce(&Info),
    ) -> Result<(), Error> {
        let network = lease.map(|lease| &lease.network);
        if let Some(network) = network {
            let node = self.node.insert(Node::start(work, programs, network)?);
            // The API server binds to the link's address.
            node.link().await?;
        }
        let plane =
            control_plane::start(work, programs, network, options.aggregator_routing, &mut self.programs)
                .await?;
        if let Some(node) = &mut self.node {
            control_plane::start_controllers(work, programs, &plane, &mut self.programs)?;
            node.join(work, &plane, &options.resources).await?;
        }
        ready(&describe(options.tier, work, programs, &plane, self.node.as_ref()));
        Err(self.first_end().await)
    }

    /// Waits until any program ends, which none should.
    async fn first_end(&mut self) -> Error {
        let node = async {
            match &mut self.node {
                Some(node) => node.ended().await,
                None => std::future::pending().await,
            }
        };
        let mut ends: Vec<_> = self.programs.iter_mut().map(|program| Box::pin(program.ended())).collect();
        let programs = std::future::poll_fn(|context| {
            let first = ends.iter_mut().find_map(|end| match end.as_mut().poll(context) {
                std::task::Poll::Ready(error) => Some(error),
                std::task::Poll::Pending => None,
            });
            first.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        });
        tokio::select! {
            error = node => error,
            error = programs => error,
        }
    }

    /// Ends everything, latest first, and waits until it is gone.
    async fn end(self) -> Result<(), Error> {
        let node = match self.node {
            Some(node) => node.kill().await,
            None => Ok(()),
        };
        for program in self.programs.into_iter().rev() {
            program.kill().await;
        }
        node
    }
}

fn describe(
    tier: Tier,
    work: &WorkDir,
    programs: &Programs,
    plane: &ControlPlane,
    node: Option<&Node>,
) -> Info {
    Info {
        tier,
        directory: work.path().to_owned(),
        kubeconfig: plane.kubeconfig.clone(),
        api_url: plane.api_url.clone(),
        ca_certificate: plane.ca_certificate.clone(),
        audit_log: plane.audit_log.clone(),
        logs: work.logs(),
        kubectl: programs.path("kubectl"),
        supervisor: std::process::id(),
        node: node.map(Node::info),
    }
}
