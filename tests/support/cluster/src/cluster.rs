//! A running cluster, from the side of the test that uses it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::OnceCell;

use crate::supervisor::Announcement;
use crate::{
    AuditEvent, Error, Info, Options, Tier, audit, containerd, eventually, kubeconfig, locate, prerequisites,
    process,
};

/// For what the controllers do within a second unless the machine is very busy.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running cluster. It ends when this value is dropped, or with the process that holds it.
pub struct Cluster {
    info: Info,
    supervisor: Mutex<Option<Supervisor>>,
}

/// The supervisor, and the pipe; closing it ends the cluster.
struct Supervisor {
    child: Child,
    lifeline: ChildStdin,
}

/// The cluster of this process, started by the first caller.
///
/// Tests in one process share it: they keep out of each other's way by [`Cluster::namespace`].
/// It holds nothing that belongs to a runtime, so each test may have its own.
pub async fn shared(tier: Tier) -> Result<&'static Cluster, Error> {
    static API: OnceCell<Cluster> = OnceCell::const_new();
    static NODE: OnceCell<Cluster> = OnceCell::const_new();
    let cell = match tier {
        Tier::Api => &API,
        Tier::Node => &NODE,
    };
    cell.get_or_try_init(|| Cluster::start(tier)).await
}

/// [`shared`], or nothing where this machine can't have such a cluster.
///
/// For tests that are to be passed over on a developer's machine without root, say. With `CI` set
/// what is missing is still an error: a test that never runs proves nothing.
pub async fn shared_if_possible(tier: Tier) -> Result<Option<&'static Cluster>, Error> {
    if_possible(shared(tier).await)
}

fn if_possible<C>(started: Result<C, Error>) -> Result<Option<C>, Error> {
    match started {
        Err(error @ Error::Prerequisites(_)) if std::env::var_os("CI").is_none() => {
            eprintln!("passed over: {error}");
            Ok(None)
        }
        result => result.map(Some),
    }
}

impl Cluster {
    /// Starts a cluster and waits until it is ready.
    ///
    /// The first start on a machine builds the programs, which takes minutes and says so on
    /// standard error.
    pub async fn start(options: impl Into<Options>) -> Result<Self, Error> {
        let options = options.into();
        // Here rather than in the supervisor, so that the error keeps its type.
        let missing = prerequisites::for_running(options.tier);
        if !missing.is_empty() {
            return Err(Error::Prerequisites(missing));
        }
        let started = tokio::task::spawn_blocking(move || Self::start_blocking(&options));
        started.await.map_err(|error| Error::io("start the cluster")(error.into()))?
    }

    /// [`Cluster::start`], or nothing where this machine can't have such a cluster, as [`shared_if_possible`].
    pub async fn start_if_possible(options: impl Into<Options>) -> Result<Option<Self>, Error> {
        if_possible(Self::start(options).await)
    }

    fn start_blocking(options: &Options) -> Result<Self, Error> {
        let mut command = Command::new(locate::supervisor()?);
        command.args(["up", "--tier", &options.tier.to_string(), "--supervised"]);
        for (name, quantity) in &options.resources {
            command.arg("--resource").arg(format!("{name}={quantity}"));
        }
        if options.aggregator_routing {
            command.arg("--aggregator-routing");
        }
        if options.network_policies {
            command.arg("--network-policies");
        }
        // Ctrl-C must not reach it: it notices the end of this process by its lifeline.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::io("start the supervisor"))?;
        let lifeline = child.stdin.take().expect("standard input is a pipe");
        let output = child.stdout.take().expect("standard output is a pipe");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(Error::io("listen to the supervisor"))?;
        let supervisor = Supervisor { child, lifeline };
        let reason = match serde_json::from_str(&line) {
            Ok(Announcement::Ready(info)) => {
                return Ok(Self { info: *info, supervisor: Mutex::new(Some(supervisor)) });
            }
            Ok(Announcement::Failed(reason)) => reason,
            Err(_) => "the supervisor ended without a word".to_owned(),
        };
        supervisor.end();
        Err(Error::Start(reason))
    }

    /// Everything there is to know about it.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// A new client with all rights, for the runtime it is made in.
    pub async fn client(&self) -> Result<Client, Error> {
        kubeconfig::client(self.kubeconfig()).await
    }

    /// A new client with the rights of a service account, which has to exist.
    pub async fn client_as(&self, namespace: &str, service_account: &str) -> Result<Client, Error> {
        self.client_with(self.token(namespace, service_account).await?).await
    }

    /// A new client as a pod has it: with a token of its service account that is bound to the pod, and so names the
    /// pod's node.
    pub async fn client_of_pod(&self, namespace: &str, pod: &str) -> Result<Client, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        let found = pods.get(pod).await?;
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.to_owned()),
            uid: found.metadata.uid,
        };
        let account = found.spec.and_then(|spec| spec.service_account_name).unwrap_or_default();
        self.client_with(self.token_for(namespace, &account, Some(bound)).await?).await
    }

    async fn client_with(&self, token: String) -> Result<Client, Error> {
        let mut config = kubeconfig::config(self.kubeconfig()).await?;
        config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
        Ok(Client::try_from(config)?)
    }

    /// A token of a service account, which has to exist.
    pub async fn token(&self, namespace: &str, service_account: &str) -> Result<String, Error> {
        self.token_for(namespace, service_account, None).await
    }

    async fn token_for(
        &self,
        namespace: &str,
        service_account: &str,
        bound_object_ref: Option<BoundObjectReference>,
    ) -> Result<String, Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(3600), bound_object_ref, ..Default::default() },
            ..Default::default()
        };
        let answer = accounts.create_token_request(service_account, &PostParams::default(), &request).await?;
        Ok(answer.status.map(|status| status.token).unwrap_or_default())
    }

    /// A kubeconfig with all rights.
    pub fn kubeconfig(&self) -> &Path {
        &self.info.kubeconfig
    }

    /// What the API server was asked so far.
    pub fn audit_log(&self) -> Result<Vec<AuditEvent>, Error> {
        self.audit_events()?.collect()
    }

    /// [`Cluster::audit_log`] one by one, for logs that are too large to be held.
    pub fn audit_events(&self) -> Result<impl Iterator<Item = Result<AuditEvent, Error>>, Error> {
        audit::read(&self.info.audit_log)
    }

    /// Creates a namespace with a unique name and returns the name. With a node, it is ready for pods.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{number}", std::process::id());
        let client = self.client().await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let metadata = ObjectMeta { name: Some(name.clone()), ..Default::default() };
        namespaces.create(&PostParams::default(), &Namespace { metadata, ..Default::default() }).await?;
        if self.info.tier == Tier::Node {
            let accounts: Api<ServiceAccount> = Api::namespaced(client, &name);
            let what = format!("the default service account of {name} exists");
            eventually(&what, TIMEOUT, || accounts.get("default")).await?;
        }
        Ok(name)
    }

    /// Runs kubectl with all rights and returns what it printed.
    pub async fn kubectl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String, Error> {
        let mut command = Command::new(&self.info.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments);
        // Discovery is cached here, which must be this cluster's own.
        command.arg("--cache-dir").arg(self.info.directory.join("kubectl"));
        blocking(move || process::run(&mut command)).await
    }

    /// Applies manifests, any number of YAML or JSON documents, and returns what kubectl printed.
    pub async fn apply(&self, manifests: &str) -> Result<String, Error> {
        let mut file = tempfile::NamedTempFile::new().map_err(Error::io("make a temporary file"))?;
        file.write_all(manifests.as_bytes()).map_err(Error::file("write", file.path()))?;
        self.kubectl(&["apply".as_ref(), "--filename".as_ref(), file.path().as_os_str()]).await
    }

    /// Makes an image from a tar file known to the node; pods that use it say `imagePullPolicy: Never`.
    pub async fn load_image(&self, tar: &Path) -> Result<(), Error> {
        let socket = self.node("load_image")?.containerd_socket.clone();
        let tar = tar.to_owned();
        blocking(move || containerd::load(&socket, &tar)).await
    }

    pub fn node_name(&self) -> Result<&str, Error> {
        Ok(&self.node("node_name")?.name)
    }

    /// Ends the cluster and waits until nothing is left of it.
    pub async fn stop(self) -> Result<(), Error> {
        blocking(move || {
            self.end();
            Ok(())
        })
        .await
    }

    fn node(&self, what: &'static str) -> Result<&crate::NodeInfo, Error> {
        self.info.node.as_ref().ok_or(Error::NeedsNode(what))
    }

    fn end(&self) {
        let supervisor = self.supervisor.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(supervisor) = supervisor {
            supervisor.end();
        }
    }
}

impl Supervisor {
    fn end(mut self) {
        drop(self.lifeline);
        // It says on standard error if something went wrong; a destructor can't return it.
        let _ = self.child.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::io("run a command")(error.into()))?
}
