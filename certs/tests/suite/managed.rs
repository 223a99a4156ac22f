//! The self-managed certificate against an API server in memory.

use std::time::Duration;

use http::Method;
use k8s_openapi::ByteString;
use serde_json::json;
use swansong_certs::{Event, ManageError, SETTLE, Source, Stage};

use crate::fake_api::{CONFIGURATION, FakeApi, SECRET};
use crate::replica::{Replica, bundles, stored, trusted};
use crate::support::{DAY, fresh, settings, start, until};

#[tokio::test]
async fn the_first_replica_makes_everything_and_the_second_look_changes_nothing() {
    let api = FakeApi::new();
    let mut replica = Replica::new(&api);
    replica.manager.ensure().await.unwrap();

    assert!(trusted(&api));
    let secret = api.get(SECRET).unwrap();
    assert_eq!(secret["type"], "Opaque");
    assert_eq!(secret["metadata"]["labels"]["app.kubernetes.io/managed-by"], "swansong");
    assert_eq!(api.get(CONFIGURATION).unwrap()["webhooks"][1]["fieldOfTheFuture"], json!({"kept": true}));
    let events = replica.events.take();
    assert!(
        matches!(
            &events[..],
            [
                Event::AuthorityIssued { .. },
                Event::LeafIssued { .. },
                Event::Authorities { stage: Stage::Steady, trusted: 1, .. },
                Event::Loaded { .. },
                Event::CaBundleSet { webhooks, .. },
            ] if webhooks.len() == 2
        ),
        "{events:?}"
    );
    let key = String::from_utf8(stored(&api).key).unwrap();
    assert!(!format!("{events:?}").contains(key.lines().nth(1).unwrap()));

    api.take_log();
    replica.manager.ensure().await.unwrap();
    assert_eq!(api.take_log(), [format!("GET {SECRET}"), format!("GET {CONFIGURATION}")]);
    assert!(replica.events.take().is_empty());
}

#[tokio::test]
async fn two_replicas_that_start_together_make_one_authority() {
    let api = FakeApi::new();
    api.meet_after_reading(2);
    let (mut one, mut two) = (Replica::new(&api), Replica::new(&api));
    let (first, second) = tokio::join!(one.manager.ensure(), two.manager.ensure());
    first.unwrap();
    second.unwrap();

    assert_eq!(api.take_log().iter().filter(|line| line.starts_with("POST")).count(), 2, "both tried");
    let made =
        |replica: &Replica| replica.events.seen(|event| matches!(event, Event::AuthorityIssued { .. }));
    assert_eq!(made(&one) + made(&two), 1);
    assert_eq!(one.serial(), two.serial());
    assert!(trusted(&api));
    assert!(bundles(&api).iter().all(|bundle| String::from_utf8_lossy(bundle).matches("BEGIN").count() == 1));
}

#[tokio::test]
async fn an_empty_secret_that_came_with_the_manifests_is_filled_and_keeps_what_it_has() {
    let api = FakeApi::new();
    api.put(
        SECRET,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "swansong-webhook-tls", "namespace": "swansong", "labels": {"team": "hpc"}},
            "data": {"tls.crt": "", "tls.key": "", "note": "aGk="},
        }),
    );
    Replica::new(&api).manager.ensure().await.unwrap();
    let secret = api.get(SECRET).unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(secret["metadata"]["labels"]["team"], "hpc");
    assert_eq!(secret["data"]["note"], "aGk=");
    assert!(trusted(&api));
}

#[tokio::test]
async fn a_damaged_leaf_is_replaced_under_the_same_authority_by_one_of_two() {
    let api = FakeApi::new();
    let (mut one, mut two) = (Replica::new(&api), Replica::new(&api));
    one.manager.ensure().await.unwrap();
    two.manager.ensure().await.unwrap();
    let before = stored(&api);
    api.edit(SECRET, |secret| secret["data"]["tls.crt"] = json!("Z2FyYmFnZQ=="));
    api.meet_after_reading(2);
    let (first, second) = tokio::join!(one.manager.ensure(), two.manager.ensure());
    first.unwrap();
    second.unwrap();

    let after = stored(&api);
    assert_eq!(after.authority_certificate, before.authority_certificate);
    assert_ne!(after.certificate, before.certificate);
    assert_eq!(one.serial(), two.serial());
    let told = |replica: &Replica| {
        replica.events.seen(|event| {
            matches!(event, Event::LeafIssued { reason, .. } if reason.contains("tls.crt holds no certificate"))
        })
    };
    assert_eq!(told(&one) + told(&two), 1);
}

/// B59.
#[tokio::test]
async fn the_leaf_is_renewed_in_time_and_the_bundle_stays() {
    let api = FakeApi::new();
    let mut replica = Replica::new(&api);
    replica.manager.ensure().await.unwrap();
    let (serial, bundle) = (replica.serial(), bundles(&api));
    replica.clock.set(start() + 61 * DAY);
    replica.manager.ensure().await.unwrap();
    assert_ne!(replica.serial(), serial);
    assert_eq!(bundles(&api), bundle);
}

#[tokio::test]
async fn a_secret_deleted_under_a_running_replica_is_made_anew_and_the_old_authority_stays_trusted() {
    let api = FakeApi::new();
    let mut replica = Replica::new(&api);
    replica.manager.ensure().await.unwrap();
    let old = stored(&api).authority_certificate;
    api.delete(SECRET);
    replica.manager.ensure().await.unwrap();
    assert_ne!(stored(&api).authority_certificate, old);
    assert!(trusted(&api));
    let old = String::from_utf8(old).unwrap().replace("\r\n", "\n");
    assert!(bundles(&api).iter().all(|bundle| String::from_utf8_lossy(bundle).contains(&old)));
}

#[tokio::test(start_paused = true)]
async fn a_new_leaf_waits_for_the_bundle_that_trusts_it_and_for_the_api_servers_to_learn_of_it() {
    let api = FakeApi::new();
    let mut replica = Replica::new(&api);
    replica.manager.ensure().await.unwrap();
    let serial = replica.serial();
    api.delete(SECRET);
    api.refuse(&Method::PATCH, 500, 1);
    replica.manager.ensure().await.unwrap_err();
    assert_eq!(replica.serial(), serial, "the API server doesn't trust the new one yet");
    replica.manager.ensure().await.unwrap();
    assert_eq!(replica.serial(), serial);
    let second = Duration::from_secs(1);
    tokio::time::advance(SETTLE.saturating_sub(second)).await;
    replica.manager.ensure().await.unwrap();
    assert_eq!(replica.serial(), serial, "the API servers may not know of it yet");
    assert_eq!(replica.events.seen(|event| matches!(event, Event::HeldBack { .. })), 1, "told once");
    tokio::time::advance(second).await;
    replica.manager.ensure().await.unwrap();
    assert_ne!(replica.serial(), serial);

    // Whoever starts in between has nothing better.
    api.delete(SECRET);
    let mut newcomer = Replica::new(&api);
    newcomer.manager.ensure().await.unwrap();
    assert!(newcomer.resolver.current().is_some());
}

#[tokio::test]
async fn a_bundle_reset_by_an_upgrade_is_set_again_and_a_change_in_between_is_met_by_reading_anew() {
    let api = FakeApi::new();
    let mut replica = Replica::new(&api);
    replica.manager.ensure().await.unwrap();
    api.edit(CONFIGURATION, |object| object["webhooks"][0]["clientConfig"]["caBundle"] = json!("Cg=="));
    // Meanwhile another replica, which holds a newer authority, sets the bundle too.
    let newer = fresh(&settings(), start()).data.authority_certificate;
    let newer = String::from_utf8(newer).unwrap().replace("\r\n", "\n");
    let other = serde_json::to_value(ByteString(newer.clone().into_bytes())).unwrap();
    api.meddle(Method::PATCH, move |objects| {
        let object = objects.get_mut(CONFIGURATION).unwrap();
        object["metadata"]["resourceVersion"] = json!("777");
        object["webhooks"][0]["clientConfig"]["caBundle"] = other.clone();
    });
    replica.manager.ensure().await.unwrap();
    assert!(trusted(&api));
    assert!(String::from_utf8_lossy(&bundles(&api)[0]).contains(&newer), "the other's must not be lost");
}

#[tokio::test]
async fn a_secret_deleted_between_reading_and_writing_is_created() {
    let api = FakeApi::new();
    let mut replica = Replica::new(&api);
    replica.manager.ensure().await.unwrap();
    api.edit(SECRET, |secret| secret["data"]["tls.key"] = json!(""));
    api.meddle(Method::PUT, |objects| drop(objects.remove(SECRET)));
    replica.manager.ensure().await.unwrap();
    assert!(trusted(&api));
}

#[tokio::test]
async fn what_is_refused_is_said_with_its_remedy() {
    let api = FakeApi::new();
    let mut replica = Replica::new(&api);
    api.refuse(&Method::GET, 403, 1);
    let error = replica.manager.ensure().await.unwrap_err().to_string();
    assert!(
        error.contains("can't get Secret swansong/swansong-webhook-tls") && error.contains("RBAC"),
        "{error}"
    );
    assert!(replica.resolver.current().is_none());

    api.delete(CONFIGURATION);
    let error = replica.manager.ensure().await.unwrap_err();
    assert!(matches!(error, ManageError::NoConfiguration { .. }), "{error}");
    assert!(error.to_string().contains("apply the manifests"), "{error}");
    assert!(replica.resolver.current().is_some(), "served all the same");
    let told = replica.events.take();
    assert!(told.contains(&Event::Recovered { source: Source::Secret }), "{told:?}");
}

#[tokio::test]
async fn a_secret_of_cert_manager_is_not_touched() {
    let api = FakeApi::new();
    api.put(
        SECRET,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "swansong-webhook-tls", "annotations": {"cert-manager.io/certificate-name": "x"}},
            "data": {"tls.crt": "", "tls.key": ""},
        }),
    );
    let error = Replica::new(&api).manager.ensure().await.unwrap_err();
    assert!(matches!(error, ManageError::Foreign { .. }), "{error}");
    assert!(api.take_log().iter().all(|line| line.starts_with("GET")));
}

#[tokio::test]
async fn a_writer_that_never_lets_up_ends_the_round_and_not_the_replica() {
    let api = FakeApi::new();
    api.refuse(&Method::POST, 409, 100);
    let error = Replica::new(&api).manager.ensure().await.unwrap_err();
    assert!(matches!(error, ManageError::Contended { attempts: 5, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_loop_backs_off_recovers_and_then_asks_little() {
    let api = FakeApi::new();
    let Replica { manager, resolver, events, .. } = Replica::new(&api);
    api.refuse(&Method::GET, 500, 6);
    let running = tokio::spawn(manager.run(Duration::from_secs(10)));
    resolver.ready().await;
    assert_eq!(events.seen(Event::is_failure), 6);
    until("bundle set", || events.seen(|event| matches!(event, Event::CaBundleSet { .. })) == 1).await;

    api.take_log();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let asked = api.take_log();
    assert!((10..=16).contains(&asked.len()), "{} requests a minute", asked.len());
    assert!(asked.iter().all(|line| line.starts_with("GET")), "{asked:?}");

    api.put(SECRET, {
        let mut secret = api.get(SECRET).unwrap();
        let other = fresh(&settings(), start()).data;
        for (key, part) in [
            ("ca.crt", &other.authority_certificate),
            ("ca.key", &other.authority_key),
            ("tls.crt", &other.certificate),
            ("tls.key", &other.key),
        ] {
            secret["data"][key] = serde_json::to_value(ByteString(part.clone())).unwrap();
        }
        secret
    });
    until("the other replica's pair in use", || {
        events.seen(|event| matches!(event, Event::Loaded { .. })) == 2
    })
    .await;
    assert!(trusted(&api));
    assert!(!running.is_finished());
    running.abort();
}
