//! The webhook under test, watched from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use procfs::process::Process;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

/// How long a condition is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A certificate as files, and what a client needs to trust it.
pub(crate) struct Tls {
    directory: TempDir,
    pub(crate) client: Arc<rustls::ClientConfig>,
}

impl Tls {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let certificate = directory.path().join("tls.crt");
        std::fs::write(&certificate, issued.cert.pem())?;
        std::fs::write(directory.path().join("tls.key"), issued.signing_key.serialize_pem())?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&certificate)?)?;
        let client = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { directory, client: Arc::new(client) })
    }
}

/// A running webhook; killed when dropped.
pub(crate) struct Webhook {
    child: Child,
    pub(crate) address: String,
    health_address: String,
}

impl Webhook {
    pub(crate) fn start(tls: &Tls) -> anyhow::Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_swansong"))
            .args(["webhook", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"])
            .args(["--log-format", "json", "--tls-cert"])
            .arg(tls.directory.path().join("tls.crt"))
            .arg("--tls-key")
            .arg(tls.directory.path().join("tls.key"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("the webhook doesn't start")?;
        let mut lines = BufReader::new(child.stderr.take().context("no log")?).lines();
        for line in lines.by_ref() {
            let line: serde_json::Value = serde_json::from_str(&line?)?;
            if let (Some(address), Some(health)) = (line["address"].as_str(), line["health_address"].as_str())
            {
                let (address, health_address) = (address.to_owned(), health.to_owned());
                // Read on, so that the webhook never waits for a full pipe.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(Self { child, address, health_address });
            }
        }
        bail!("the webhook logged no address")
    }

    /// Resident memory, bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        Ok(self.process()?.status()?.vmrss.context("no VmRSS")? * 1024)
    }

    /// The most resident memory there ever was, bytes.
    pub(crate) fn peak(&self) -> anyhow::Result<u64> {
        Ok(self.process()?.status()?.vmhwm.context("no VmHWM")? * 1024)
    }

    /// Open files: as soon as there are so few, else what there are at least over some seconds.
    pub(crate) async fn files_at_most(&self, few: usize) -> anyhow::Result<usize> {
        let mut least = usize::MAX;
        for _ in 0..100 {
            least = least.min(self.process()?.fd_count()?);
            if least <= few {
                break;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        Ok(least)
    }

    fn process(&self) -> anyhow::Result<Process> {
        Ok(Process::new(i32::try_from(self.child.id())?)?)
    }

    /// The sum of a metric's series whose labels hold `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &str) -> anyhow::Result<f64> {
        let mut stream = TcpStream::connect(&self.health_address)?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let mut sum = 0.0;
        for line in text.lines().filter(|line| line.starts_with(name) && line.contains(labels)) {
            let (series, value) = line.rsplit_once(' ').context("a value")?;
            if series.len() == name.len() || series[name.len()..].starts_with('{') {
                sum += value.parse::<f64>()?;
            }
        }
        Ok(sum)
    }

    /// Waits until nothing is connected any more.
    pub(crate) async fn quiet(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        for gauge in
            ["swansong_connections", "swansong_tls_handshakes_in_progress", "swansong_large_body_bytes"]
        {
            while self.metric(gauge, "")? > 0.5 {
                ensure!(Instant::now() < deadline, "{gauge} doesn't come down to 0");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Mebibytes, for people.
#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// An HTTP request that carries a body to `/mutate`.
pub(crate) fn request(body: &[u8]) -> Arc<[u8]> {
    let head = format!(
        "POST /mutate?timeout=5s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat().into()
}
