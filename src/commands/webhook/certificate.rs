//! Where the webhook's certificate comes from: files that someone else keeps, or a Secret that Swansong keeps.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use swansong_certs::{
    CHECK_INTERVAL, ClientRoots, Event, FilePair, FileWatcher, Manager, MinimumTls, Objects, Observer,
    Resolver, Settings, SystemClock, TlsOptions, service_names,
};
use swansong_webhook::server::Metrics;
use tracing::{info, warn};

use super::background::Background;

/// Set by the manifests from the downward API.
const POD_NAMESPACE: &str = "POD_NAMESPACE";

/// Set by the kubelet in every pod.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// The oldest TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TlsVersion {
    #[value(name = "1.3")]
    Tls13,
    #[value(name = "1.2")]
    Tls12,
}

#[derive(Debug, clap::Args)]
pub(super) struct Certificate {
    /// Certificate chain, PEM; reloaded when it changes. Without it Swansong keeps a certificate of its own in a Secret
    #[arg(long, env = "SWANSONG_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key, PEM
    #[arg(long, env = "SWANSONG_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Secret that Swansong keeps its certificate in
    #[arg(long, env = "SWANSONG_TLS_SECRET", value_name = "NAME", default_value = "swansong-webhook-tls")]
    tls_secret: String,
    /// Namespace of the Secret and the Service [default: this pod's, from POD_NAMESPACE or its service account]
    #[arg(long, env = "SWANSONG_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
    /// Service that the API server calls the webhook by
    #[arg(long, env = "SWANSONG_SERVICE", value_name = "NAME", default_value = "swansong-webhook")]
    service: String,
    /// MutatingWebhookConfiguration whose caBundle Swansong keeps
    #[arg(long, env = "SWANSONG_WEBHOOK_CONFIGURATION", value_name = "NAME", default_value = "swansong")]
    webhook_configuration: String,
    /// Authorities, PEM, of which clients must show a certificate
    #[arg(long, env = "SWANSONG_CLIENT_CA", value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Oldest TLS that is accepted
    #[arg(long, env = "SWANSONG_TLS_MIN_VERSION", value_name = "VERSION", value_enum, default_value = "1.3")]
    tls_min_version: TlsVersion,
}

impl Certificate {
    pub(super) fn tls_options(&self) -> anyhow::Result<TlsOptions> {
        let client_roots = self.client_ca.as_ref().map(|path| {
            let pem =
                fs::read(path).with_context(|| format!("--client-ca {} can't be read", path.display()))?;
            anyhow::Ok(ClientRoots { name: path.display().to_string(), pem })
        });
        Ok(TlsOptions {
            minimum: match self.tls_min_version {
                TlsVersion::Tls13 => MinimumTls::Tls13,
                TlsVersion::Tls12 => MinimumTls::Tls12,
            },
            client_roots: client_roots.transpose()?,
            alpn: vec![b"http/1.1".to_vec()],
        })
    }

    /// Starts what feeds the resolver, and names it. Files are looked at before this returns; a Secret may take longer.
    pub(super) async fn start(
        &self,
        resolver: &Arc<Resolver>,
        metrics: &Arc<Metrics>,
        reload_interval: Duration,
        background: &mut Background,
    ) -> anyhow::Result<&'static str> {
        let (resolver, observer) = (Arc::clone(resolver), observer(Arc::clone(metrics)));
        let clock = Arc::new(SystemClock);
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let files = FilePair::new(certificate, key);
            let mut watcher = FileWatcher::new(files, resolver, clock, observer);
            watcher.poll()?;
            background.start(watcher.run(reload_interval));
            return Ok("files");
        }
        let config = client_config().await?;
        let namespace = self.namespace.clone().or_else(|| env::var(POD_NAMESPACE).ok());
        let namespace =
            namespace.filter(|name| !name.is_empty()).unwrap_or_else(|| config.default_namespace.clone());
        let settings = Settings::new(service_names(&self.service, &namespace));
        let objects = Objects {
            namespace,
            secret: self.tls_secret.clone(),
            webhook_configuration: self.webhook_configuration.clone(),
        };
        let client = kube::Client::try_from(config).context("no client of the API server can be made")?;
        let manager = Manager::new(client, &objects, settings, resolver, clock, observer);
        background.start(manager.run(CHECK_INTERVAL));
        Ok("secret")
    }
}

/// In a pod the API server is called by the address in the environment: cluster DNS may come up after us.
async fn client_config() -> anyhow::Result<kube::Config> {
    const HINT: &str = "without --tls-cert and --tls-key the certificate is kept in a Secret, \
                        but the API server can't be found; give both files, or run in a cluster";
    // The errors tell their causes themselves, so there is no chain to keep.
    if env::var_os(IN_CLUSTER).is_some() {
        kube::Config::incluster().map_err(|error| anyhow!("{HINT} ({error})"))
    } else {
        kube::Config::infer().await.map_err(|error| anyhow!("{HINT} ({error})"))
    }
}

/// Turns what happens to the certificate into logs and metrics.
fn observer(metrics: Arc<Metrics>) -> Arc<dyn Observer> {
    Arc::new(move |event: &Event| {
        match event {
            Event::Loaded { not_after, .. } => metrics.certificate_loaded(*not_after),
            Event::Failed { source, .. } => metrics.certificate_failed(source.as_str()),
            _ => {}
        }
        if event.is_failure() {
            warn!(problem = %event, "certificate");
        } else {
            info!(news = %event, "certificate");
        }
    })
}
