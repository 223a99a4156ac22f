//! One connection of a load generator: keep-alive HTTP/1.1 over TLS 1.3 with as little work per request as possible.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// One keep-alive connection over TLS.
pub struct Connection {
    pub stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: &str, tls: Arc<rustls::ClientConfig>) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let stream = TlsConnector::from(tls).connect(name, stream).await?;
        Ok(Self { stream, buffer: Vec::with_capacity(16 * 1024) })
    }

    /// Sends a prepared request and reads the answer whole; returns its body.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((start, length)) = head(&self.buffer)? {
                while self.buffer.len() < start + length {
                    if self.stream.read_buf(&mut self.buffer).await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                return Ok(&self.buffer[start..start + length]);
            }
        }
    }
}

/// Where the body starts and how long it is, once the whole head is there; a status other than 200 is an error.
fn head(buffer: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = response.parse(buffer).map_err(io::Error::other)? else {
        return Ok(None);
    };
    if response.code != Some(200) {
        return Err(io::Error::other(format!("status {:?}", response.code)));
    }
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    length.map(|length| Some((start, length))).ok_or_else(|| io::Error::other("no content-length"))
}
