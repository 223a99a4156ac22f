//! The manager against an API server in memory.

use std::time::Duration;

use http::Method;
use k8s_openapi::ByteString;
use serde_json::json;
use swansong_certs::{Event, Source};

use crate::replica::{CONFIGURATION, Replica, SECRET, api_server, bundles, is_trusted, store, stored};
use crate::support::{DAY, fresh, settings, start, until};

#[tokio::test]
async fn the_first_round_creates_everything_and_the_second_one_changes_nothing() {
    let api = api_server();
    let mut replica = Replica::new(&api);
    replica.manager.reconcile().await.unwrap();

    assert!(is_trusted(&api));
    let secret = api.get(SECRET).unwrap();
    assert_eq!(secret["type"], "Opaque");
    assert_eq!(secret["metadata"]["labels"]["app.kubernetes.io/managed-by"], "swansong");
    assert_eq!(api.get(CONFIGURATION).unwrap()["webhooks"][1]["fieldOfTheFuture"], json!({"kept": true}));
    let events = replica.events.take();
    // Served, and so ready for reviews, only when the caBundle trusts it.
    assert!(
        matches!(
            &events[..],
            [
                Event::CaIssued { .. },
                Event::LeafIssued { .. },
                Event::CasChanged { trusted: 1, next_pending: false, .. },
                Event::CaBundleUpdated { webhooks, .. },
                Event::Loaded { .. },
            ] if webhooks.split(", ").count() == 2
        ),
        "{events:?}"
    );
    let key = String::from_utf8(stored(&api).leaf.key).unwrap();
    assert!(!format!("{events:?}").contains(key.lines().nth(1).unwrap()));

    api.take_requests();
    replica.manager.reconcile().await.unwrap();
    assert_eq!(api.take_requests(), [format!("GET {SECRET}"), format!("GET {CONFIGURATION}")]);
    assert!(replica.events.take().is_empty());
}

#[tokio::test]
async fn two_replicas_that_start_together_create_one_ca() {
    let api = api_server();
    api.meet_after_reading(SECRET, 2);
    let (mut one, mut two) = (Replica::new(&api), Replica::new(&api));
    let (first, second) = tokio::join!(one.manager.reconcile(), two.manager.reconcile());
    first.unwrap();
    second.unwrap();

    assert_eq!(api.take_requests().iter().filter(|line| line.starts_with("POST")).count(), 2, "both tried");
    let issued = |replica: &Replica| replica.events.count(|event| matches!(event, Event::CaIssued { .. }));
    assert_eq!(issued(&one) + issued(&two), 1);
    assert_eq!(one.serial(), two.serial());
    assert!(is_trusted(&api));
    assert!(bundles(&api).iter().all(|bundle| String::from_utf8_lossy(bundle).matches("BEGIN").count() == 1));
}

#[tokio::test]
async fn fills_an_empty_secret_of_the_manifests_and_preserves_its_other_fields() {
    let api = api_server();
    api.put(
        SECRET,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "swansong-webhook-tls", "namespace": "swansong", "labels": {"team": "hpc"}},
            "data": {"tls.crt": "", "tls.key": "", "note": "aGk="},
        }),
    );
    Replica::new(&api).manager.reconcile().await.unwrap();
    let secret = api.get(SECRET).unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(secret["metadata"]["labels"]["team"], "hpc");
    assert_eq!(secret["data"]["note"], "aGk=");
    assert!(is_trusted(&api));
}

#[tokio::test]
async fn one_of_two_replicas_replaces_a_damaged_leaf_under_the_same_ca() {
    let api = api_server();
    let (mut one, mut two) = (Replica::new(&api), Replica::new(&api));
    one.manager.reconcile().await.unwrap();
    two.manager.reconcile().await.unwrap();
    let before = stored(&api);
    api.edit(SECRET, |secret| secret["data"]["tls.crt"] = json!("Z2FyYmFnZQ=="));
    api.meet_after_reading(SECRET, 2);
    let (first, second) = tokio::join!(one.manager.reconcile(), two.manager.reconcile());
    first.unwrap();
    second.unwrap();

    let after = stored(&api);
    assert_eq!(after.ca, before.ca);
    assert_ne!(after.leaf, before.leaf);
    assert_eq!(one.serial(), two.serial());
    let issued = |replica: &Replica| {
        replica.events.count(|event| {
            matches!(event, Event::LeafIssued { reason, .. } if reason.contains("tls.crt holds no certificate"))
        })
    };
    assert_eq!(issued(&one) + issued(&two), 1);
}

#[tokio::test]
async fn renews_the_leaf_in_time_and_keeps_the_bundle() {
    let api = api_server();
    let mut replica = Replica::new(&api);
    replica.manager.reconcile().await.unwrap();
    let (serial, bundle) = (replica.serial(), bundles(&api));
    replica.clock.set(start() + 61 * DAY);
    replica.manager.reconcile().await.unwrap();
    assert_ne!(replica.serial(), serial);
    assert_eq!(bundles(&api), bundle);
}

#[tokio::test]
async fn creates_a_deleted_secret_and_keeps_trusting_the_old_ca() {
    let api = api_server();
    let mut replica = Replica::new(&api);
    replica.manager.reconcile().await.unwrap();
    let old = stored(&api).ca.certificate;
    api.delete(SECRET);
    replica.manager.reconcile().await.unwrap();
    assert_ne!(stored(&api).ca.certificate, old);
    assert!(is_trusted(&api));
    let old = String::from_utf8(old).unwrap().replace("\r\n", "\n");
    assert!(bundles(&api).iter().all(|bundle| String::from_utf8_lossy(bundle).contains(&old)));
}

#[tokio::test(start_paused = true)]
async fn a_new_leaf_waits_for_its_ca_in_the_bundle_and_for_the_settle_time() {
    let api = api_server();
    let mut replica = Replica::new(&api);
    replica.manager.reconcile().await.unwrap();
    let serial = replica.serial();
    api.delete(SECRET);
    api.fail(&Method::PATCH, 500, 1);
    replica.manager.reconcile().await.unwrap_err();
    assert_eq!(replica.serial(), serial, "the API server doesn't trust the new one yet");
    replica.manager.reconcile().await.unwrap();
    assert_eq!(replica.serial(), serial);
    let second = Duration::from_secs(1);
    tokio::time::advance(settings().settle_time.saturating_sub(second)).await;
    replica.manager.reconcile().await.unwrap();
    assert_eq!(replica.serial(), serial, "the API servers may not know it yet");
    let waiting = replica.events.count(|event| matches!(event, Event::WaitingForCaBundle { .. }));
    assert_eq!(waiting, 1, "reported once");
    tokio::time::advance(second).await;
    replica.manager.reconcile().await.unwrap();
    assert_ne!(replica.serial(), serial);

    // A replica that starts in between has no other leaf.
    api.delete(SECRET);
    let mut late = Replica::new(&api);
    late.manager.reconcile().await.unwrap();
    assert!(late.resolver.current().is_some());
}

#[tokio::test]
async fn sets_a_reset_bundle_again_without_losing_a_concurrent_change() {
    let api = api_server();
    let mut replica = Replica::new(&api);
    replica.manager.reconcile().await.unwrap();
    api.edit(CONFIGURATION, |object| object["webhooks"][0]["clientConfig"]["caBundle"] = json!("Cg=="));
    // Another replica, which has a newer CA, sets the bundle too.
    let newer = fresh(&settings(), start()).data.ca.certificate;
    let newer = String::from_utf8(newer).unwrap().replace("\r\n", "\n");
    let other = serde_json::to_value(ByteString(newer.clone().into_bytes())).unwrap();
    api.write_before(Method::PATCH, move |api| {
        api.edit(CONFIGURATION, |object| object["webhooks"][0]["clientConfig"]["caBundle"] = other);
    });
    replica.manager.reconcile().await.unwrap();
    assert!(is_trusted(&api));
    assert!(String::from_utf8_lossy(&bundles(&api)[0]).contains(&newer), "the other change is lost");
}

#[tokio::test]
async fn creates_a_secret_that_is_deleted_between_read_and_write() {
    let api = api_server();
    let mut replica = Replica::new(&api);
    replica.manager.reconcile().await.unwrap();
    api.edit(SECRET, |secret| secret["data"]["tls.key"] = json!(""));
    api.write_before(Method::PUT, |api| api.delete(SECRET));
    replica.manager.reconcile().await.unwrap();
    assert!(is_trusted(&api));
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let api = api_server();
    let mut replica = Replica::new(&api);
    api.fail(&Method::GET, 403, 1);
    let error = replica.manager.reconcile().await.unwrap_err().to_string();
    assert!(
        error.contains("can't get Secret swansong/swansong-webhook-tls") && error.contains("RBAC"),
        "{error}"
    );
    assert!(replica.resolver.current().is_none());

    api.delete(CONFIGURATION);
    let error = replica.manager.reconcile().await.unwrap_err();
    assert!(error.to_string().contains("MutatingWebhookConfiguration swansong doesn't exist"), "{error}");
    assert!(error.to_string().contains("apply the manifests"), "{error}");
    assert!(replica.resolver.current().is_some(), "served in any case");
    let events = replica.events.take();
    assert!(events.contains(&Event::Recovered { source: Source::Secret }), "{events:?}");
}

#[tokio::test]
async fn does_not_change_a_secret_of_cert_manager() {
    let api = api_server();
    api.put(
        SECRET,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "swansong-webhook-tls", "annotations": {"cert-manager.io/certificate-name": "x"}},
            "data": {"tls.crt": "", "tls.key": ""},
        }),
    );
    let error = Replica::new(&api).manager.reconcile().await.unwrap_err();
    assert!(error.to_string().contains("belongs to cert-manager"), "{error}");
    assert!(api.take_requests().iter().all(|line| line.starts_with("GET")));
}

#[tokio::test]
async fn repeated_conflicts_end_the_round() {
    let api = api_server();
    api.fail(&Method::POST, 409, 100);
    let error = Replica::new(&api).manager.reconcile().await.unwrap_err();
    assert!(error.to_string().contains("changed during each of 5 attempts"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_loop_backs_off_recovers_and_then_sends_few_requests() {
    let api = api_server();
    let Replica { manager, resolver, events, .. } = Replica::new(&api);
    api.fail(&Method::GET, 500, 6);
    let running = tokio::spawn(manager.run(Duration::from_secs(10)));
    resolver.ready().await;
    assert_eq!(events.count(Event::is_failure), 6);
    assert_eq!(events.count(|event| matches!(event, Event::CaBundleUpdated { .. })), 1);

    api.take_requests();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let requests = api.take_requests();
    assert!((10..=16).contains(&requests.len()), "{} requests a minute", requests.len());
    assert!(requests.iter().all(|line| line.starts_with("GET")), "{requests:?}");

    store(&api, &fresh(&settings(), start()).data);
    until("the other pair in use", || events.count(|event| matches!(event, Event::Loaded { .. })) == 2).await;
    assert!(is_trusted(&api));
    assert!(!running.is_finished());
    running.abort();
}
