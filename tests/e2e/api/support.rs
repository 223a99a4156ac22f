//! One API server, one webhook, and the registration between them, shared by all tests of this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use swansong_demo::definitions;
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::report::Outcome;
use swansong_inject::workload::WorkloadKind;
use swansong_testcluster::{AuditEvent, Cluster, Tier, eventually};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Everything relative to the repository.
pub(crate) const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// What every test works with.
pub(crate) struct Rig {
    pub(crate) cluster: &'static Cluster,
    /// Its certificate, kept for as long as it serves.
    _certificate: Certificate,
    webhook: Webhook,
}

impl Rig {
    pub(crate) fn health_address(&self) -> &str {
        &self.webhook.health_address
    }
}

/// The shared rig; the first test to ask waits for it to be made.
pub(crate) async fn rig() -> &'static Rig {
    static RIG: OnceCell<Rig> = OnceCell::const_new();
    static TRIED: AtomicBool = AtomicBool::new(false);
    RIG.get_or_init(|| async {
        assert!(
            !TRIED.swap(true, Ordering::Relaxed),
            "the rig couldn't be made; the first test that failed says why"
        );
        let cluster = swansong_testcluster::shared(Tier::Api).await.expect("an API server");
        definitions::apply(cluster, &definitions::file()).await.expect("the definitions");
        let certificate = Certificate::new();
        let webhook = Webhook::start(&certificate.webhook());
        let client_config = certificate.client_config(&webhook);
        register(cluster, "swansong", &client_config, &json!({})).await;
        Rig { cluster, _certificate: certificate, webhook }
    })
    .await
}

/// A certificate for 127.0.0.1 in files, for as long as this lives.
pub(crate) struct Certificate {
    pub(crate) files: TempDir,
    pub(crate) issued: rcgen::Certificate,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(files.path().join("tls.crt"), cert.pem()).unwrap();
        std::fs::write(files.path().join("tls.key"), signing_key.serialize_pem()).unwrap();
        Self { files, issued: cert }
    }

    /// A webhook on free ports that shows it.
    pub(crate) fn webhook(&self) -> Command {
        let mut command = swansong(["webhook", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"]);
        command.args(["--log-format", "json"]);
        command.arg("--tls-cert").arg(self.files.path().join("tls.crt"));
        command.arg("--tls-key").arg(self.files.path().join("tls.key"));
        command
    }

    /// How the API server reaches that webhook, and trusts it.
    pub(crate) fn client_config(&self, webhook: &Webhook) -> Value {
        json!({"url": format!("https://{}/mutate", webhook.address), "caBundle": base64(self.issued.pem())})
    }
}

/// The swansong binary under test.
pub(crate) fn swansong<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swansong"));
    command.args(arguments);
    command
}

/// A webhook process that ends when this is dropped or the test process ends.
pub(crate) struct Webhook {
    pub(crate) address: String,
    health_address: String,
    /// Everything it has written so far.
    log: Arc<Mutex<Vec<String>>>,
    /// The shell beside the webhook ends it when its standard input closes.
    shell: Child,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

impl Webhook {
    pub(crate) fn start(command: &Command) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut webhook = Self {
            address: String::new(),
            health_address: String::new(),
            log: Arc::clone(&log),
            shell: tied(command).spawn().expect("sh"),
        };
        let (sender, lines) = mpsc::channel();
        read_lines(webhook.shell.stdout.take().unwrap(), sender.clone(), Arc::clone(&log));
        read_lines(webhook.shell.stderr.take().unwrap(), sender, log);
        while let Ok(line) = lines.recv_timeout(Duration::from_secs(30)) {
            if let Some((address, health_address)) = addresses(&line) {
                (webhook.address, webhook.health_address) = (address, health_address);
                return webhook;
            }
        }
        panic!("the webhook logged no address:\n{}", webhook.log().join("\n"));
    }

    /// Everything it has written so far, line by line.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn health_address(&self) -> &str {
        &self.health_address
    }

    /// The answer of the health port, head and body.
    pub(crate) fn health(&self, path: &str) -> String {
        http_get(&self.health_address, path)
    }

    /// The value of a metric, named as it is written.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let text = self.health("/metrics");
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }
}

/// The answer to a request, head and body.
pub(crate) fn http_get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: health\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The command under a shell that prints its PID and ends it when the shell's standard input closes. So no process remains
/// when the test is killed.
pub(crate) fn tied(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#""$0" "$@" & echo "$!"; cat > /dev/null; kill $!; wait $!"#])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

/// Reads on for as long as the process writes, so that it never blocks on a full pipe.
pub(crate) fn read_lines(
    pipe: impl Read + Send + 'static,
    sender: mpsc::Sender<String>,
    log: Arc<Mutex<Vec<String>>>,
) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            log.lock().unwrap().push(line.clone());
            let _ = sender.send(line);
        }
    });
}

fn addresses(line: &str) -> Option<(String, String)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let address = |field| line.get(field)?.as_str().map(str::to_owned);
    Some((address("address")?, address("health_address")?))
}

/// The webhooks of `manifests/base` under another name, pointed at `client_config`, with `changes` merged into each.
pub(crate) async fn configuration(
    cluster: &Cluster,
    name: &str,
    client_config: &Value,
    changes: &Value,
) -> Value {
    let base = Path::new(REPOSITORY).join("manifests/base");
    let rendered = cluster.kubectl(&["kustomize".as_ref(), base.as_os_str()]).await.unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let is_ours = |document: &Value| document["kind"] == "MutatingWebhookConfiguration";
    let mut configuration = documents.into_iter().find(is_ours).expect("in the manifests");
    configuration["metadata"] = json!({"name": name});
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"] = client_config.clone();
        for (key, value) in changes.as_object().unwrap() {
            webhook[key] = value.clone();
        }
    }
    configuration
}

/// Registers the webhooks and waits until the API server calls them.
pub(crate) async fn register(cluster: &Cluster, name: &str, client_config: &Value, changes: &Value) {
    let client = cluster.client().await.unwrap();
    let configuration = configuration(cluster, name, client_config, changes).await;
    create(&client, "", configuration).await.expect("the API server takes the configuration");
    wait_until_called(cluster, name).await;
}

/// Creates probes until the API server sends one to the webhook, since it loads a new configuration later.
async fn wait_until_called(cluster: &Cluster, configuration: &str) {
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("probe").await.unwrap();
    let number = std::cell::Cell::new(0);
    eventually("the webhook to be called", Duration::from_secs(30), || async {
        number.set(number.get() + 1);
        let name = format!("probe-{}", number.get());
        let pod = asking_pod(&name, &json!([{"name": "ascend", "image": "probe"}]));
        create(&client, &namespace, pod).await.map_err(|error| error.to_string())?;
        let called =
            calls(cluster, &namespace, &name).iter().any(|call| call["configuration"] == configuration);
        if called { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await
    .unwrap();
}

/// A Pod that asks for a dump by its own annotation.
pub(crate) fn asking_pod(name: &str, containers: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"recover-strategy": "dump"}},
        "spec": {"containers": containers},
    })
}

/// Job files of other people, laid beside the repository where it is developed.
pub(crate) fn inputs_directory() -> PathBuf {
    Path::new(REPOSITORY).join("../shared/inputs")
}

/// Creates any object; returns it as the API server stored it.
pub(crate) async fn create(client: &Client, namespace: &str, object: Value) -> kube::Result<Value> {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let created = api(client, namespace, &object).create(&PostParams::default(), &object).await?;
    Ok(serde_json::to_value(created).unwrap())
}

/// The API of an object's own kind; cluster-wide when `namespace` is empty.
pub(crate) fn api(client: &Client, namespace: &str, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.as_ref().expect("apiVersion and kind");
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).unwrap());
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// The webhook calls that the API server noted for the creation of an object.
pub(crate) fn calls(cluster: &Cluster, namespace: &str, name: &str) -> Vec<Value> {
    creation(cluster, namespace, name).map_or_else(Vec::new, |event| {
        let notes =
            event.annotations.iter().filter(|(key, _)| key.starts_with("mutation.webhook.admission.k8s.io/"));
        notes.filter_map(|(_, note)| serde_json::from_str(note).ok()).collect()
    })
}

/// The audit event of an object's creation.
pub(crate) fn creation(cluster: &Cluster, namespace: &str, name: &str) -> Option<AuditEvent> {
    cluster.audit_log().unwrap().into_iter().find(|event| {
        let Some(object) = &event.object_ref else { return false };
        // A generated name is only in the response, so the request of a `generateName` has none.
        event.verb == "create"
            && event.stage == "ResponseComplete"
            && object.namespace == namespace
            && object.subresource.is_empty()
            && object.name == name
    })
}

/// The core's result for an object of any kind.
pub(crate) fn examine(object: &Value) -> Outcome {
    let kind =
        WorkloadKind::of(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap();
    inject(kind, &object.to_string(), &Policy::default()).unwrap()
}

pub(crate) fn base64(text: String) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A kubeconfig like a Pod's, of a new account without rights: a token, and nothing of an administrator's. Returns
/// the token.
pub(crate) async fn token_kubeconfig(cluster: &Cluster, namespace: &str, file: &Path) -> String {
    cluster.kubectl(&["create", "-n", namespace, "serviceaccount", "webhook"]).await.unwrap();
    let token = cluster.token(namespace, "webhook").await.unwrap();
    let info = cluster.info();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{ "name": "it", "cluster": { "server": info.api_url, "certificate-authority": info.ca_certificate } }],
        "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it", "namespace": namespace } }],
        "users": [{ "name": "it", "user": { "token": token } }],
    });
    std::fs::write(file, text.to_string()).unwrap();
    token
}

/// Gives the account of [`token_kubeconfig`] all rights.
pub(crate) async fn grant_everything(cluster: &Cluster, namespace: &str) {
    let (name, account) = (format!("all-{namespace}"), format!("{namespace}:webhook"));
    let bind =
        ["create", "clusterrolebinding", &name, "--clusterrole=cluster-admin", "--serviceaccount", &account];
    cluster.kubectl(&bind).await.unwrap();
}
