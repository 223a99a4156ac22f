//! Authenticates agents by the service account tokens that the kubelet projects, with TokenReviews.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::AUDIENCE;

/// The node of the token's Pod; in tokens since Kubernetes 1.30.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// How long a review is cached. The API server itself caches it for 10 s.
const CACHE_TTL: Duration = Duration::from_mins(1);
/// The limit of cached reviews.
const MAX_CACHED: usize = 16_384;
/// The limit of concurrent reviews: a thousand agents at once must not flood the API server.
const MAX_CONCURRENT: usize = 32;
/// How long a review may take, including the wait for a slot.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit for a token, in bytes; those of the API server have about a thousand.
const MAX_TOKEN: usize = 16 << 10;

/// Why a token wasn't accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The token isn't that of an agent.
    #[error("the token isn't one of an agent: {0}")]
    NotAnAgent(String),
    /// The API server didn't review the token.
    #[error("the API server doesn't review the token: {0}")]
    ReviewFailed(String),
}

/// Authenticates agents by their tokens.
pub struct TokenAuthenticator {
    reviews: Api<TokenReview>,
    /// The user of the agents' tokens, `system:serviceaccount:NAMESPACE:NAME`.
    user: String,
    slots: Semaphore,
    /// Nodes and expiry times by the hash of the token; tokens themselves aren't kept in memory.
    cache: Mutex<HashMap<[u8; 32], (String, Instant)>>,
}

impl TokenAuthenticator {
    /// Creates an authenticator for Pods of the service account `name` in `namespace`.
    pub fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Self {
            reviews: Api::all(client),
            user,
            slots: Semaphore::new(MAX_CONCURRENT),
            cache: Mutex::default(),
        }
    }

    /// The node of the agent with this token.
    pub async fn authenticate(&self, token: &str) -> Result<String, AuthError> {
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(AuthError::NotAnAgent("that is no token at all".to_owned()));
        }
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(node) = self.cached(&hash) {
            return Ok(node);
        }
        let review = timeout(REVIEW_TIMEOUT, self.review(token)).await;
        let review = review.map_err(|_| format!("no answer within {REVIEW_TIMEOUT:?}"));
        let status = review.flatten().map_err(AuthError::ReviewFailed)?;
        let node = agent_node(status, &self.user).map_err(AuthError::NotAnAgent)?;
        self.cache(hash, &node);
        Ok(node)
    }

    async fn review(&self, token: &str) -> Result<TokenReviewStatus, String> {
        let _slot = self.slots.acquire().await;
        let spec =
            TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.reviews.create(&PostParams::default(), &review).await;
        review
            .map_err(|error| error.to_string())?
            .status
            .ok_or_else(|| "a response without status".to_owned())
    }

    fn cached(&self, hash: &[u8; 32]) -> Option<String> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(hash).filter(|(_, expiry)| *expiry > Instant::now()).map(|(node, _)| node.clone())
    }

    fn cache(&self, hash: [u8; 32], node: &str) {
        let now = Instant::now();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, (_, expiry)| *expiry > now);
        }
        if cache.len() < MAX_CACHED {
            cache.insert(hash, (node.to_owned(), now + CACHE_TTL));
        }
    }
}

/// The node that a token of the agents' `user` names. The error says why the token isn't one.
fn agent_node(status: TokenReviewStatus, user: &str) -> Result<String, String> {
    if !status.authenticated.unwrap_or_default() {
        return Err(status.error.unwrap_or_else(|| "it isn't valid".to_owned()));
    }
    // An API server without support for audiences returns none and accepts any token.
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
        _ => Err("it names no node; Kubernetes adds the node's name from 1.30 on".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    const USER: &str = "system:serviceaccount:swansong-agent:swansong-agent";

    fn valid_status() -> TokenReviewStatus {
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
    fn accepts_only_tokens_of_agents_with_a_node() {
        type Change = fn(&mut TokenReviewStatus);
        assert_eq!(agent_node(valid_status(), USER), Ok("worker-1".to_owned()));
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
            let mut status = valid_status();
            change(&mut status);
            let error = agent_node(status, USER).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    /// An API server that returns `valid_status` and counts the reviews.
    fn counting_client(reviews: Arc<AtomicUsize>) -> kube::Client {
        let service = tower::service_fn(move |_| {
            reviews.fetch_add(1, Ordering::SeqCst);
            let review = TokenReview { status: Some(valid_status()), ..TokenReview::default() };
            let body = serde_json::to_vec(&review).expect("JSON");
            async { Ok::<_, Infallible>(http::Response::new(kube::client::Body::from(body))) }
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_each_token_once_a_minute() {
        let reviews = Arc::new(AtomicUsize::new(0));
        let client = counting_client(Arc::clone(&reviews));
        let authenticator = TokenAuthenticator::new(client, "swansong-agent", "swansong-agent");
        for _ in 0..5 {
            assert_eq!(authenticator.authenticate("token").await, Ok("worker-1".to_owned()));
        }
        assert_eq!(reviews.load(Ordering::SeqCst), 1);
        tokio::time::advance(CACHE_TTL).await;
        assert!(authenticator.authenticate("token").await.is_ok());
        assert_eq!(reviews.load(Ordering::SeqCst), 2);
        for token in ["", &"x".repeat(MAX_TOKEN + 1)] {
            assert!(matches!(authenticator.authenticate(token).await, Err(AuthError::NotAnAgent(_))));
        }
        assert_eq!(reviews.load(Ordering::SeqCst), 2);
    }
}
