//! A kubelet that only shows logs. The API server doesn't verify its certificate, as in a cluster of kubeadm.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Serves this log of the Pod, and no other.
pub(super) async fn serve_log(address: IpAddr, pod: &'static str, log: &'static str) -> SocketAddr {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([address.to_string()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let served = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { answer(&acceptor, connection, pod, log).await });
        }
    });
    served
}

/// Answers one request; the API server opens a connection for each.
async fn answer(acceptor: &TlsAcceptor, connection: TcpStream, pod: &str, log: &str) -> std::io::Result<()> {
    let mut connection = acceptor.accept(connection).await?;
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let byte = connection.read_u8().await?;
        request.push(byte);
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let is_known =
        path.starts_with("/containerLogs/") && path.contains(pod) && path.contains("timestamps=true");
    let (status, body) = if is_known { ("200 OK", log) } else { ("404 Not Found", "") };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(body.as_bytes()).await?;
    connection.shutdown().await
}
