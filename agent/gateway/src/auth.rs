//! Who asks: an agent shows the token that the kubelet keeps for it, and the API server says whose it is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::AUDIENCE;

/// In the token of a pod since Kubernetes 1.30: the node that the pod runs on.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// How long an answer is believed. The API server itself believes it for 10 s.
const KEPT: Duration = Duration::from_mins(1);
/// How many answers are kept.
const MOST: usize = 16_384;
/// Reviews under way at one time: a thousand agents that ask at once are no flood to the API server.
const AT_ONCE: usize = 32;
/// How long one may take, waiting for its turn included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a token; those of the API server have about a thousand.
const LONGEST: usize = 16 << 10;

/// The asker isn't an agent, or that can't be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not a token of ours.
    #[error("the token isn't one of an agent: {0}")]
    NotAnAgent(String),
    /// The API server doesn't answer.
    #[error("the API server doesn't say whose token this is: {0}")]
    Unknown(String),
}

/// Says whose a token is.
pub trait Reviewer: Send + Sync + 'static {
    /// What the API server says of `token`.
    fn review(&self, token: &str) -> impl Future<Output = Result<TokenReviewStatus, String>> + Send;
}

/// The API server.
#[derive(Clone)]
pub struct ApiServer(Api<TokenReview>);

impl ApiServer {
    /// By way of `client`.
    pub fn new(client: kube::Client) -> Self {
        Self(Api::all(client))
    }
}

impl Reviewer for ApiServer {
    async fn review(&self, token: &str) -> Result<TokenReviewStatus, String> {
        let spec =
            TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = self.0.create(&PostParams::default(), &review).await;
        answer.map_err(|error| error.to_string())?.status.ok_or_else(|| "an answer without status".to_owned())
    }
}

/// Knows agents by their tokens.
#[derive(Debug)]
pub struct Doorkeeper<R> {
    reviewer: R,
    /// `system:serviceaccount:NAMESPACE:NAME`
    user: String,
    turns: Semaphore,
    /// Nodes by the hash of the token, so that no token lies in memory for long.
    known: Mutex<HashMap<[u8; 32], (String, Instant)>>,
}

impl<R: Reviewer> Doorkeeper<R> {
    /// Lets in the pods of the service account `name` in `namespace`.
    pub fn new(reviewer: R, namespace: &str, name: &str) -> Self {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Self { reviewer, user, turns: Semaphore::new(AT_ONCE), known: Mutex::default() }
    }

    /// The node of the agent whose token it is.
    pub async fn node_of(&self, token: &str) -> Result<String, Refused> {
        if token.is_empty() || token.len() > LONGEST {
            return Err(Refused::NotAnAgent("that is no token at all".to_owned()));
        }
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(node) = self.remembered(&hash) {
            return Ok(node);
        }
        let review = async {
            let _turn = self.turns.acquire().await;
            self.reviewer.review(token).await
        };
        let status = timeout(PATIENCE, review).await;
        let status = status.map_err(|_| Refused::Unknown(format!("no answer within {PATIENCE:?}")))?;
        let node = node(status.map_err(Refused::Unknown)?, &self.user).map_err(Refused::NotAnAgent)?;
        self.remember(hash, &node);
        Ok(node)
    }

    fn remembered(&self, hash: &[u8; 32]) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(hash).filter(|(_, until)| *until > Instant::now()).map(|(node, _)| node.clone())
    }

    fn remember(&self, hash: [u8; 32], node: &str) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < MOST {
            known.insert(hash, (node.to_owned(), now + KEPT));
        }
    }
}

/// The node of an agent, if `status` is of one; an error says why not.
fn node(status: TokenReviewStatus, user: &str) -> Result<String, String> {
    if !status.authenticated.unwrap_or_default() {
        return Err(status.error.unwrap_or_else(|| "it isn't valid".to_owned()));
    }
    // An API server that knows no audiences leaves them out, and would let any token pass.
    if !status.audiences.unwrap_or_default().iter().any(|audience| audience == AUDIENCE) {
        return Err(format!("it isn't meant for {AUDIENCE}"));
    }
    let info = status.user.unwrap_or_default();
    if info.username.as_deref() != Some(user) {
        return Err(format!("it is of {}", info.username.unwrap_or_default()));
    }
    let mut nodes = info.extra.unwrap_or_default().remove(NODE_NAME).unwrap_or_default();
    match (nodes.pop(), nodes.is_empty()) {
        (Some(node), true) if !node.is_empty() => Ok(node),
        _ => Err("it names no node; Kubernetes puts the node's name into it from 1.30 on".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    const USER: &str = "system:serviceaccount:swansong-agent:swansong-agent";

    fn sound() -> TokenReviewStatus {
        let extra = BTreeMap::from([(NODE_NAME.to_owned(), vec!["worker-1".to_owned()])]);
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec![AUDIENCE.to_owned()]),
            user: Some(UserInfo {
                username: Some(USER.to_owned()),
                extra: Some(extra),
                ..UserInfo::default()
            }),
            error: None,
        }
    }

    #[test]
    fn only_a_token_of_an_agent_on_a_node_is_taken() {
        type Change = fn(&mut TokenReviewStatus);
        assert_eq!(node(sound(), USER), Ok("worker-1".to_owned()));
        let cases: [(Change, &str); 9] = [
            (|s| s.authenticated = Some(false), "isn't valid"),
            (|s| s.authenticated = None, "isn't valid"),
            (|s| s.audiences = None, "isn't meant for"),
            (|s| s.audiences = Some(vec!["https://kubernetes.default.svc".to_owned()]), "isn't meant for"),
            (|s| s.user = None, "it is of"),
            (
                |s| {
                    s.user.as_mut().expect("a user").username =
                        Some("system:serviceaccount:other:swansong-agent".to_owned());
                },
                "it is of system:serviceaccount:other",
            ),
            (|s| s.user.as_mut().expect("a user").extra = None, "names no node"),
            (
                |s| {
                    s.user.as_mut().expect("a user").extra =
                        Some(BTreeMap::from([(NODE_NAME.to_owned(), vec![String::new()])]));
                },
                "names no node",
            ),
            (
                |s| {
                    let two = vec!["worker-1".to_owned(), "worker-2".to_owned()];
                    s.user.as_mut().expect("a user").extra =
                        Some(BTreeMap::from([(NODE_NAME.to_owned(), two)]));
                },
                "names no node",
            ),
        ];
        for (change, why) in cases {
            let mut status = sound();
            change(&mut status);
            let error = node(status, USER).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    struct Counting(Arc<AtomicUsize>);

    impl Reviewer for Counting {
        async fn review(&self, _: &str) -> Result<TokenReviewStatus, String> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(sound())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_asked_about_once_a_minute() {
        let asked = Arc::new(AtomicUsize::new(0));
        let door = Doorkeeper::new(Counting(Arc::clone(&asked)), "swansong-agent", "swansong-agent");
        for _ in 0..5 {
            assert_eq!(door.node_of("token").await, Ok("worker-1".to_owned()));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        tokio::time::advance(KEPT).await;
        assert!(door.node_of("token").await.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        for token in ["", &"x".repeat(LONGEST + 1)] {
            assert!(matches!(door.node_of(token).await, Err(Refused::NotAnAgent(_))));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
