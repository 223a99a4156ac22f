//! The webhook's certificate: from files, or from a Secret that Swansong manages.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use arc_swap::ArcSwap;
use rustls::version::TLS13;
use rustls::{ALL_VERSIONS, ServerConfig, SupportedProtocolVersion};
use swansong_certs::{
    ClientCaWatcher, FilePair, FileWatcher, ManagedObjects, Manager, Observer, Resolver, server_config,
    service_names,
};

use super::USER_AGENT;
use super::background::Background;
use super::rotation::Rotation;

/// Set by the manifests from the downward API.
const POD_NAMESPACE: &str = "POD_NAMESPACE";

/// The oldest accepted TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TlsVersion {
    #[value(name = "1.3")]
    Tls13,
    #[value(name = "1.2")]
    Tls12,
}

#[derive(Debug, clap::Args)]
pub(super) struct Certificate {
    /// Certificate chain, PEM; reloaded when it changes. Without it Swansong manages a certificate in a Secret
    #[arg(long, env = "SWANSONG_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key, PEM
    #[arg(long, env = "SWANSONG_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Secret with the certificate that Swansong manages
    #[arg(long, env = "SWANSONG_TLS_SECRET", value_name = "NAME", default_value = "swansong-webhook-tls")]
    tls_secret: String,
    /// Namespace of the Secret and the Service [default: this pod's, from POD_NAMESPACE or its service account]
    #[arg(long, env = "SWANSONG_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
    /// Service by which the API server calls the webhook
    #[arg(long, env = "SWANSONG_SERVICE", value_name = "NAME", default_value = "swansong-webhook")]
    service: String,
    /// MutatingWebhookConfiguration whose caBundle Swansong manages
    #[arg(long, env = "SWANSONG_WEBHOOK_CONFIGURATION", value_name = "NAME", default_value = "swansong")]
    webhook_configuration: String,
    #[command(flatten)]
    rotation: Rotation,
    /// CAs, PEM, that sign the certificates of clients; reloaded when they change. Without it clients need none
    #[arg(long, env = "SWANSONG_CLIENT_CA", value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Oldest accepted TLS version
    #[arg(long, env = "SWANSONG_TLS_MIN_VERSION", value_name = "VERSION", value_enum, default_value = "1.3")]
    tls_min_version: TlsVersion,
}

impl Certificate {
    /// Builds the TLS configuration of the server, and starts the watcher of client CAs.
    pub(super) fn tls(
        &self,
        resolver: &Arc<Resolver>,
        observer: &Observer,
        reload_interval: Duration,
        background: &mut Background,
    ) -> anyhow::Result<Arc<ArcSwap<ServerConfig>>> {
        let versions: &[&SupportedProtocolVersion] = match self.tls_min_version {
            TlsVersion::Tls13 => &[&TLS13],
            TlsVersion::Tls12 => ALL_VERSIONS,
        };
        let resolver = Arc::clone(resolver);
        let Some(path) = &self.client_ca else {
            return Ok(server_config(resolver, versions)?);
        };
        let watcher = ClientCaWatcher::open(path, resolver, versions, Arc::clone(observer))?;
        let config = Arc::clone(watcher.config());
        background.start(watcher.run(reload_interval));
        Ok(config)
    }

    /// Starts the source of the resolver and returns its name. Files are read before this returns.
    pub(super) async fn start(
        &self,
        resolver: &Arc<Resolver>,
        observer: &Observer,
        reload_interval: Duration,
        background: &mut Background,
    ) -> anyhow::Result<&'static str> {
        let (resolver, observer) = (Arc::clone(resolver), Arc::clone(observer));
        let clock = Arc::new(SystemTime::now);
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let files = FilePair { certificate: certificate.clone(), key: key.clone() };
            let mut watcher = FileWatcher::new(files, resolver, clock, observer);
            watcher.poll()?;
            background.start(watcher.run(reload_interval));
            return Ok("files");
        }
        self.rotation.check()?;
        let config = swansong_runtime::kube::config(USER_AGENT).await.map_err(|problem| {
            anyhow!(
                "without --tls-cert and --tls-key the certificate is stored in a Secret, but no cluster is configured: \
                 {problem}; give both files, run in a cluster, or set KUBECONFIG"
            )
        })?;
        let namespace = self.namespace.clone().or_else(|| env::var(POD_NAMESPACE).ok());
        let namespace =
            namespace.filter(|name| !name.is_empty()).unwrap_or_else(|| config.default_namespace.clone());
        let settings = self.rotation.settings(service_names(&self.service, &namespace));
        let objects = ManagedObjects {
            namespace,
            secret: self.tls_secret.clone(),
            webhook_configuration: self.webhook_configuration.clone(),
        };
        let client = kube::Client::try_from(config).context("no client of the API server can be made")?;
        let manager = Manager::new(client, &objects, settings, resolver, clock, observer);
        background.start(manager.run(self.rotation.check_interval()));
        Ok("secret")
    }
}
