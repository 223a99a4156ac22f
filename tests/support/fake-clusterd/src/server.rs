//! The gRPC server.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::stream;
use swansong_clusterd_client::proto;
use swansong_clusterd_client::proto::pub_fault_server::{PubFault, PubFaultServer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::bucket::Bucket;
use crate::connection::{Connection, Connections, Count};
use crate::core::{Core, Settings};
use crate::ledger::{Answer, Ledger};

/// Limit of streams per connection.
const STREAMS: u32 = 64;
/// Limit of calls per second, for all methods together.
const CALLS: u64 = 1000;
/// Limit of a message in bytes.
const MESSAGE: usize = 4 << 20;

/// How the server responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Normal,
    /// It answers 410.
    TooMany,
    /// It answers 409.
    Refuse,
    /// It answers an undocumented code.
    Code(i32),
    /// It accepts calls and never answers.
    Hang,
    /// It accepts connections and sends nothing.
    HalfOpen,
    /// It resets connections.
    Reset,
    /// It accepts the faults and resets the connection instead of answering.
    ResetAfter,
    /// It answers each call with the status `UNAVAILABLE`.
    Unavailable,
}

/// A clock in milliseconds since 1970.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Tokio's clock, beginning at the system's time.
    Running(u64, Instant),
    /// A clock that only [`advance`](Self::advance) moves.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A running clock.
    pub fn running() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::Running(u64::try_from(since.as_millis()).unwrap_or_default(), Instant::now())
    }

    /// A clock that remains at `now` until [`advance`](Self::advance) moves it.
    pub fn manual(now: u64) -> Self {
        Self::Manual(Arc::new(now.into()))
    }

    pub fn now(&self) -> u64 {
        match self {
            Self::Running(start, from) => {
                start + u64::try_from(from.elapsed().as_millis()).unwrap_or_default()
            }
            Self::Manual(now) => now.load(Ordering::SeqCst),
        }
    }

    /// Moves a manual clock.
    pub fn advance(&self, by: Duration) {
        if let Self::Manual(now) = self {
            now.fetch_add(u64::try_from(by.as_millis()).unwrap_or_default(), Ordering::SeqCst);
        }
    }
}

/// The server. It resets its connections when it is dropped.
#[derive(Debug)]
pub struct FakeClusterd {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    calls: Mutex<Bucket>,
    behaviour: watch::Sender<Behaviour>,
    clock: Clock,
    connections: Arc<Connections>,
}

impl FakeClusterd {
    /// Listens on a port of 127.0.0.1 that the kernel chooses.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), settings, Clock::running()).await
    }

    /// Listens on `address`.
    pub async fn start_at(address: SocketAddr, settings: Settings, clock: Clock) -> io::Result<Self> {
        let connections = Arc::new(Connections::new(settings.per_source));
        let shared = Shared {
            core: Mutex::new(Core::new(settings)),
            calls: Mutex::new(Bucket::new(CALLS, CALLS, clock.now())),
            behaviour: watch::Sender::new(Behaviour::Normal),
            clock,
            connections,
        };
        let mut clusterd = Self { address, shared: Arc::new(shared), server: None };
        clusterd.listen().await?;
        Ok(clusterd)
    }

    async fn listen(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.address = listener.local_addr()?;
        let shared = Arc::clone(&self.shared);
        self.server = Some(tokio::spawn(serve(listener, shared)));
        Ok(())
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Changes how the server responds.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.behaviour.send_replace(behaviour);
    }

    /// Reads or changes the state at the current time.
    pub fn with<T>(&self, access: impl FnOnce(&mut Core, u64) -> T) -> T {
        let now = self.shared.clock.now();
        let mut core = self.shared.core();
        core.tick(now);
        access(&mut core, now)
    }

    pub fn ledger(&self) -> Ledger {
        self.with(|core, _| core.ledger().clone())
    }

    pub fn connections(&self) -> Count {
        self.shared.connections.count()
    }

    /// Stops listening and resets all connections.
    pub async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
        }
        self.shared.connections.reset();
    }

    /// Starts again on the same port, with the state that survives a restart of ClusterD.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.with(Core::restart);
        self.listen().await
    }
}

impl Drop for FakeClusterd {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
        self.shared.connections.reset();
    }
}

impl Shared {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behaviour(&self) -> Behaviour {
        *self.behaviour.borrow()
    }

    /// Counts a call against the limit of all calls.
    fn admit(&self) -> Result<(), Status> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.take(self.clock.now()) {
            Ok(())
        } else {
            Err(Status::resource_exhausted("too many requests"))
        }
    }

    /// Waits until the behaviour changes.
    async fn hang(&self) -> Status {
        let mut behaviour = self.behaviour.subscribe();
        let _ = behaviour.wait_for(|behaviour| *behaviour != Behaviour::Hang).await;
        Status::unavailable("it hung")
    }

    async fn public_fault(
        &self,
        message: &proto::PublicFaultRequest,
        peer: Option<SocketAddr>,
    ) -> Result<proto::RespStatus, Status> {
        self.admit()?;
        let now = self.clock.now();
        let instead = |code, info: &str| {
            let answer = Answer { at: now, code, info: info.to_owned(), faults: message.faults.len() };
            self.core().note(answer);
            Ok(proto::RespStatus { code, info: info.to_owned() })
        };
        match self.behaviour() {
            Behaviour::Hang | Behaviour::HalfOpen => Err(self.hang().await),
            Behaviour::Unavailable | Behaviour::Reset => Err(Status::unavailable("not now")),
            Behaviour::TooMany => instead(410, "limiter work by resource failed"),
            Behaviour::Refuse => {
                instead(409, "check public fault info failed, error: there is no valid fault")
            }
            Behaviour::Code(code) => instead(code, "something else"),
            Behaviour::Normal => Ok(self.core().send_public_fault(message, now)),
            Behaviour::ResetAfter => {
                self.core().send_public_fault(message, now);
                if let Some(peer) = peer {
                    self.connections.reset_one(peer);
                }
                Err(Status::unavailable("reset"))
            }
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let service = Service(Arc::clone(&shared));
    let incoming = stream::unfold((listener, shared), |(listener, shared)| async {
        let connection = accept(&listener, &shared).await;
        Some((Ok::<_, io::Error>(connection), (listener, shared)))
    });
    let served = Server::builder()
        .max_concurrent_streams(STREAMS)
        .add_service(PubFaultServer::new(service).max_decoding_message_size(MESSAGE))
        .serve_with_incoming(incoming);
    if let Err(error) = served.await {
        eprintln!("the fake ClusterD no longer serves: {error}");
    }
}

/// The next connection that is within the limits.
async fn accept(listener: &TcpListener, shared: &Arc<Shared>) -> Connection {
    loop {
        let Ok((stream, peer)) = listener.accept().await else { continue };
        match shared.behaviour() {
            Behaviour::Reset => {
                let _ = stream.set_zero_linger();
            }
            Behaviour::HalfOpen => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move {
                    let mut behaviour = shared.behaviour.subscribe();
                    let _ = behaviour.wait_for(|behaviour| *behaviour != Behaviour::HalfOpen).await;
                    drop(stream);
                });
            }
            _ => {
                if let Some(connection) = shared.connections.accept(stream, peer) {
                    return connection;
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Service(Arc<Shared>);

#[tonic::async_trait]
impl PubFault for Service {
    async fn send_public_fault(
        &self,
        request: Request<proto::PublicFaultRequest>,
    ) -> Result<Response<proto::RespStatus>, Status> {
        let peer = request.extensions().get::<SocketAddr>().copied();
        self.0.public_fault(request.get_ref(), peer).await.map(Response::new)
    }
}
