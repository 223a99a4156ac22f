//! Rotations of CA and leaf by several replicas against an API server in memory.

use std::time::Duration;

use serde_json::json;
use swansong_certs::{Event, MAX_PREVIOUS, RETIRED, ROTATE, Settings, TRUSTED_UNTIL};

use crate::replica::{CONFIGURATION, Replica, SECRET, api_server, bundles, is_trusted, sizes, store, stored};
use crate::replicas::{OVERLAP, ROUND, Replicas, SETTLE_TIME, settings, short_lived};
use crate::support::{DAY, fresh, start};

#[tokio::test(start_paused = true)]
async fn rotates_the_ca_on_request_with_overlap() {
    let mut all = Replicas::new(3, &short_lived()).await;
    let before = stored(&all.api);
    let serials = all.serials();
    assert_eq!(serials.len(), 1);

    all.request("ca");
    all.check().await;
    assert_eq!(sizes(&all.api), [2, 2], "current and next CA");
    all.rounds(5).await;
    assert_eq!(all.serials(), serials, "the API servers may not know the next CA yet");
    assert_eq!(stored(&all.api).leaf, before.leaf);
    assert_eq!(all.annotation(ROTATE).as_deref(), Some("ca"), "not fulfilled yet");

    all.rounds(2).await;
    let after = stored(&all.api);
    assert_ne!(after.ca, before.ca);
    assert_ne!(all.serials(), serials);
    assert_eq!(all.serials().len(), 1);
    assert_eq!(all.annotation(ROTATE), None, "fulfilled");
    assert_eq!(sizes(&all.api), [2, 2], "the previous CA remains");
    // The first leaf was issued at the start and is valid for 20 minutes; the tolerance is five.
    assert!(all.annotation(TRUSTED_UNTIL).unwrap().ends_with("=2026-11-18T11:31:40Z"));

    all.pass(OVERLAP.saturating_sub(8 * ROUND)).await;
    assert_eq!(sizes(&all.api), [2, 2], "its last leaf may still be accepted somewhere");
    all.rounds(2).await;
    assert_eq!(sizes(&all.api), [1, 1]);
    assert!(is_trusted(&all.api));
    assert_eq!(all.annotation(TRUSTED_UNTIL), None);
    assert_eq!(all.annotation(RETIRED).unwrap().len(), 16);
    assert!(all.api.get(SECRET).unwrap()["data"]["previous-ca.crt"].is_null());
    assert!(stored(&all.api).next_ca.is_empty());
    for (events, count) in [
        (all.count(|event| matches!(event, Event::CaAnnounced { .. })), 1),
        (all.count(|event| matches!(event, Event::CaPromoted { .. })), 1),
        (all.count(|event| matches!(event, Event::CaRetired { .. })), 1),
        (all.count(|event| matches!(event, Event::CaAdopted { .. })), 0),
        (all.count(|event| matches!(event, Event::CasChanged { next_pending: true, .. })), 3),
        (all.count(|event| matches!(event, Event::CasChanged { trusted: 2, next_pending: false, .. })), 3),
    ] {
        assert_eq!(events, count);
    }
}

#[tokio::test(start_paused = true)]
async fn only_reads_after_a_rotation() {
    let mut all = Replicas::new(3, &settings()).await;
    all.request("ca");
    all.pass(SETTLE_TIME + 2 * ROUND).await;
    all.api.take_requests();
    all.pass(Duration::from_mins(10)).await;
    assert!(all.api.take_requests().iter().all(|line| line.starts_with("GET")));
}

#[tokio::test(start_paused = true)]
async fn a_previous_ca_remains_until_a_replica_that_is_cut_off_has_no_valid_leaf() {
    let mut all = Replicas::new(2, &short_lived()).await;
    let cut_off = all.replicas.pop().unwrap();
    let pair = cut_off.resolver.current().unwrap();
    all.request("ca");
    while sizes(&all.api) != [1, 1]
        || stored(&all.api).next_ca.is_empty() && all.annotation(RETIRED).is_none()
    {
        all.rounds(1).await;
        if all.replicas[0].clock.now() <= pair.leaf.not_after {
            let ca = bundles(&all.api).iter().all(|bundle| crate::simulation::trusts(bundle, &pair));
            assert!(ca, "the leaf is valid and its CA isn't trusted");
        }
    }
    assert!(all.replicas[0].clock.now() >= pair.leaf.not_after + Duration::from_mins(5));
}

#[tokio::test(start_paused = true)]
async fn renews_the_leaf_at_once_on_request() {
    let mut all = Replicas::new(2, &settings()).await;
    let (before, serials) = (stored(&all.api), all.serials());
    all.request("leaf");
    all.check().await;
    assert_ne!(all.serials(), serials);
    assert_eq!(all.serials().len(), 1);
    assert_eq!(all.annotation(ROTATE), None);
    assert_eq!(stored(&all.api).ca, before.ca);
    assert_eq!(all.count(|event| matches!(event, Event::LeafIssued { .. })), 2);
}

#[tokio::test(start_paused = true)]
async fn revokes_all_cas_at_once_on_request() {
    let mut all = Replicas::new(2, &settings()).await;
    all.request("ca");
    all.pass(SETTLE_TIME + 2 * ROUND).await;
    all.request("ca");
    all.check().await;
    assert_eq!(sizes(&all.api), [3, 3], "previous, current and next");
    let (before, serials) = (stored(&all.api), all.serials());
    tokio::time::advance(Duration::from_mins(10)).await;

    all.request("revoke-ca");
    all.check().await;
    let after = stored(&all.api);
    assert!(after.ca != before.ca && after.ca != before.next_ca);
    assert_eq!(sizes(&all.api), [1, 1]);
    assert!(is_trusted(&all.api));
    assert_ne!(all.serials(), serials);
    assert_eq!(all.serials().len(), 1, "each replica serves the new leaf with its first check");
    assert_eq!(all.annotation(ROTATE), None);
    assert_eq!(all.annotation(RETIRED).unwrap().split(' ').count(), 3);
    let revoked =
        |event: &Event| matches!(event, Event::CaRetired { reason, .. } if reason == "it was revoked");
    assert_eq!(all.count(revoked), 3);
    all.rounds(3).await;
    assert_eq!(sizes(&all.api), [1, 1], "none returns");
}

#[tokio::test(start_paused = true)]
async fn reports_an_unknown_request_once_and_keeps_the_annotation() {
    let mut all = Replicas::new(1, &settings()).await;
    all.request("everything");
    all.pass(Duration::from_mins(1)).await;
    let events = all.replicas[0].events.take();
    let unknown: Vec<_> =
        events.iter().filter(|event| matches!(event, Event::UnknownRotationRequest { .. })).collect();
    assert_eq!(unknown.len(), 1);
    assert!(
        unknown[0].to_string().contains(r#"is "everything", which is ignored; use ca, leaf or revoke-ca"#)
    );
    assert_eq!(all.annotation(ROTATE).as_deref(), Some("everything"));
}

#[tokio::test(start_paused = true)]
async fn renews_ca_and_leaf_after_two_thirds_of_their_validity() {
    let mut all = Replicas::new(2, &settings()).await;
    let (before, serials) = (stored(&all.api), all.serials());
    all.skip(61 * DAY);
    all.check().await;
    assert_ne!(all.serials(), serials);
    assert_eq!(stored(&all.api).ca, before.ca);
    let due = |event: &Event| matches!(event, Event::LeafIssued { reason, .. } if reason.contains("previous one expires"));
    assert_eq!(all.count(due), 1);

    // Ten years and an hour; two thirds of that have passed.
    all.skip(2373 * DAY);
    all.check().await;
    all.pass(SETTLE_TIME + 4 * ROUND).await;
    assert_ne!(stored(&all.api).ca, before.ca);
    let due = |event: &Event| matches!(event, Event::CaAnnounced { reason, .. } if reason.contains("previous one expires"));
    assert_eq!(all.count(due), 1);
    tokio::time::advance(Duration::from_mins(10)).await;
    all.skip(91 * DAY);
    all.rounds(3).await;
    assert_eq!(sizes(&all.api), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn renews_a_leaf_at_start_that_expired_while_no_replica_ran() {
    let all = Replicas::new(1, &settings()).await;
    let before = stored(&all.api);
    let mut late = Replica::with(&all.api, settings());
    late.clock.set(start() + 91 * DAY);
    late.manager.reconcile().await.unwrap();
    assert_eq!(stored(&all.api).ca, before.ca);
    assert_ne!(stored(&all.api).leaf, before.leaf);
    let events = late.events.take();
    assert!(
        matches!(&events[0], Event::LeafIssued { reason, .. } if reason.contains("expired at 2027-02-")),
        "{events:?}"
    );

    // Without the right to update, the error says what to do, and the expired leaf is served rather than none.
    let mut forbidden = Replica::with(&all.api, settings());
    forbidden.manager.reconcile().await.unwrap();
    forbidden.clock.set(start() + 200 * DAY);
    all.api.fail(&http::Method::PUT, 403, 1);
    let error = forbidden.manager.reconcile().await.unwrap_err().to_string();
    assert!(error.contains("can't update Secret") && error.contains("RBAC"), "{error}");
    assert!(forbidden.resolver.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn validities_of_minutes_rotate_without_a_gap() {
    let brief = Settings {
        ca_validity: Duration::from_mins(4),
        leaf_validity: Duration::from_mins(1),
        settle_time: Duration::from_secs(20),
        clock_tolerance: Duration::from_secs(10),
        ..settings()
    };
    let mut all = Replicas::new(2, &brief).await;
    let mut largest = 0;
    for _ in 0..180 {
        all.rounds(1).await;
        assert!(
            all.replicas
                .iter()
                .all(|replica| { replica.resolver.current().unwrap().leaf.not_after > replica.clock.now() })
        );
        largest = largest.max(sizes(&all.api)[0]);
    }
    assert_eq!(largest, 2);
    let cas = all.count(|event| matches!(event, Event::CaPromoted { .. }));
    let leaves = all.count(|event| matches!(event, Event::LeafIssued { .. }));
    assert!((9..=14).contains(&cas), "{cas} in half an hour");
    assert!((40..=70).contains(&leaves), "{leaves} in half an hour");
    assert_eq!(all.count(|event| matches!(event, Event::CaIssued { .. })), 1, "never without announcement");
}

#[tokio::test(start_paused = true)]
async fn a_second_rotation_does_not_wait_for_the_end_of_the_first() {
    let mut all = Replicas::new(2, &settings()).await;
    for rotations in 1..=MAX_PREVIOUS {
        all.request("ca");
        all.pass(SETTLE_TIME + 2 * ROUND).await;
        assert_eq!(sizes(&all.api), [rotations + 1; 2]);
        assert_eq!(all.annotation(ROTATE), None);
        tokio::time::advance(Duration::from_mins(10)).await;
    }
    // Further CAs would make the bundle grow without bound, so the rotation waits until a previous one expires.
    all.request("ca");
    all.pass(2 * SETTLE_TIME).await;
    assert_eq!(all.annotation(ROTATE).as_deref(), Some("ca"));
    assert_eq!(sizes(&all.api), [MAX_PREVIOUS + 2; 2]);
    let retired = |event: &Event| matches!(event, Event::CaRetired { .. });
    assert_eq!(all.count(retired), 0);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_joins_during_a_rotation_serves_the_old_leaf_until_it_has_observed_the_new_ca() {
    let mut all = Replicas::new(2, &settings()).await;
    all.request("ca");
    all.rounds(4).await;
    let mut late = Replica::with(&all.api, settings());
    late.clock.set(start() + 4 * ROUND);
    late.manager.reconcile().await.unwrap();
    let old = late.serial();
    all.replicas.push(late);
    all.rounds(4).await;
    assert_eq!(all.replicas[2].serial(), old);
    assert_ne!(all.replicas[0].serial(), old);
    all.rounds(3).await;
    assert_eq!(all.serials().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn replaces_a_ca_without_its_key_with_overlap() {
    let mut all = Replicas::new(2, &short_lived()).await;
    let serials = all.serials();
    all.api.edit(SECRET, |secret| secret["data"]["ca.key"] = json!("Z2FyYmFnZQ=="));
    all.rounds(5).await;
    assert_eq!(all.serials(), serials);
    // A replica that starts now serves the trusted leaf.
    let mut late = Replica::with(&all.api, short_lived());
    late.manager.reconcile().await.unwrap();
    assert_eq!(late.serial(), serials[0]);
    all.pass(OVERLAP + 4 * ROUND).await;
    assert_ne!(all.serials(), serials);
    assert_eq!(sizes(&all.api), [1, 1]);
    let announced = |event: &Event| matches!(event, Event::CaAnnounced { reason, .. } if reason.contains("ca.key holds no private key"));
    assert_eq!(all.count(announced), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_is_created_while_replicas_serve_the_old_leaf() {
    let mut all = Replicas::new(2, &short_lived()).await;
    let serials = all.serials();
    all.api.delete(SECRET);
    all.rounds(5).await;
    assert_eq!(all.serials(), serials);
    assert_eq!(sizes(&all.api), [2, 2]);
    all.pass(OVERLAP + 4 * ROUND).await;
    assert_ne!(all.serials(), serials);
    assert_eq!(all.serials().len(), 1);
    assert_eq!(sizes(&all.api), [1, 1]);
    assert_eq!(all.count(|event| matches!(event, Event::CaAdopted { .. })), 1);
    let issued =
        |event: &Event| matches!(event, Event::CaIssued { reason, .. } if reason.contains("there was none"));
    assert_eq!(all.count(issued), 2, "at the start and after the deletion");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_list_of_previous_cas_is_restored_from_the_bundle() {
    let mut all = Replicas::new(1, &settings()).await;
    all.request("ca");
    all.pass(SETTLE_TIME + 2 * ROUND).await;
    let until = all.annotation(TRUSTED_UNTIL).unwrap();
    let (id, _) = until.split_once('=').unwrap();
    all.api.edit(SECRET, |secret| secret["data"]["previous-ca.crt"] = json!("Z2FyYmFnZQ=="));
    all.rounds(3).await;
    assert_eq!(sizes(&all.api), [2, 2]);
    assert!(all.annotation(TRUSTED_UNTIL).unwrap().starts_with(id));

    // A previous CA without a time gets one that no leaf can outlive.
    all.api.edit(SECRET, |secret| secret["metadata"]["annotations"][TRUSTED_UNTIL] = json!("?"));
    all.rounds(1).await;
    assert!(all.annotation(TRUSTED_UNTIL).unwrap().starts_with(&format!("{id}=2027-02-")));
}

#[tokio::test(start_paused = true)]
async fn a_user_can_end_the_overlap_by_the_annotation() {
    let mut all = Replicas::new(2, &settings()).await;
    all.request("ca");
    all.pass(SETTLE_TIME + 2 * ROUND).await;
    let until = all.annotation(TRUSTED_UNTIL).unwrap();
    let (id, _) = until.split_once('=').unwrap();
    let past = json!(format!("{id}=2026-01-01T00:00:00Z"));
    all.api.edit(SECRET, |secret| secret["metadata"]["annotations"][TRUSTED_UNTIL] = past);
    all.rounds(1).await;
    assert_eq!(sizes(&all.api), [1, 1]);
    assert_eq!(all.annotation(RETIRED).as_deref(), Some(id));
}

#[tokio::test(start_paused = true)]
async fn a_retired_ca_that_an_old_manifest_restores_is_removed_again() {
    let mut all = Replicas::new(1, &short_lived()).await;
    let old = bundles(&all.api)[0].clone();
    all.request("ca");
    all.pass(OVERLAP + 4 * ROUND).await;
    assert_eq!(sizes(&all.api), [1, 1]);
    let text = serde_json::to_value(k8s_openapi::ByteString(old)).unwrap();
    all.api.edit(CONFIGURATION, |object| object["webhooks"][0]["clientConfig"]["caBundle"] = text);
    all.check().await;
    assert_eq!(sizes(&all.api), [1, 1]);
    assert!(is_trusted(&all.api));
}

#[tokio::test(start_paused = true)]
async fn promotes_the_next_ca_only_when_every_webhook_has_it() {
    let mut all = Replicas::new(1, &settings()).await;
    let before = stored(&all.api);
    let bundle = serde_json::to_value(k8s_openapi::ByteString(bundles(&all.api)[0].clone())).unwrap();
    all.request("ca");
    all.rounds(5).await;
    // A tool restores the old manifest after the last observation.
    all.api.edit(CONFIGURATION, |object| object["webhooks"][1]["clientConfig"]["caBundle"] = bundle);
    tokio::time::advance(2 * ROUND).await;
    all.check().await;
    assert_eq!(stored(&all.api).ca, before.ca);
    all.rounds(5).await;
    assert_eq!(stored(&all.api).ca, before.ca, "the settle time starts again");
    all.rounds(2).await;
    assert_ne!(stored(&all.api).ca, before.ca);
}

#[tokio::test(start_paused = true)]
async fn replicas_with_wrong_clocks_use_the_api_servers_time() {
    let mut all = Replicas::new(3, &settings()).await;
    let (before, serials) = (stored(&all.api), all.serials());
    all.api.set_time(start() + DAY);
    all.replicas[0].clock.set(start() + 400 * DAY);
    all.replicas[1].clock.set(start() - 400 * DAY);
    all.replicas[2].clock.set(start() + DAY + Duration::from_mins(1));
    all.api.take_requests();
    for _ in 0..5 {
        all.check().await;
    }
    assert_eq!(stored(&all.api), before);
    assert_eq!(all.serials(), serials);
    assert!(all.api.take_requests().iter().all(|line| line.starts_with("GET")));
    let events: Vec<_> = all.replicas.iter().map(|replica| replica.events.take()).collect();
    let is_skew = |event: &&Event| matches!(event, Event::ClockSkewDetected { .. });
    let skews: Vec<_> = events.iter().map(|events| events.iter().filter(is_skew).count()).collect();
    assert_eq!(skews, [1, 1, 0], "{events:?}");
    let text = events[0].iter().find(is_skew).unwrap().to_string();
    assert!(text.contains("is 34473600 s ahead of the API server's"), "{text}");
    all.replicas[0].clock.set(start() + DAY);
    all.check().await;
    assert_eq!(all.replicas[0].events.take(), [Event::ClockSkewResolved]);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_revert_each_other_stop_renewing() {
    let api = api_server();
    // Two Deployments with different names on one Secret.
    let mut other = settings();
    other.dns_names = swansong_certs::service_names("other", "swansong");
    let (mut one, mut two) = (Replica::new(&api), Replica::with(&api, other));
    let mut refused = 0;
    for _ in 0..30 {
        for replica in [&mut one, &mut two] {
            match replica.manager.reconcile().await {
                Ok(()) => {}
                Err(error) => {
                    let error = error.to_string();
                    let named = error.contains("renewed Secret swansong/swansong-webhook-tls 3 times");
                    assert!(named && error.contains("not valid for"), "{error}");
                    refused += 1;
                }
            }
        }
        tokio::time::advance(ROUND).await;
    }
    assert!(refused > 20, "{refused}");
    assert_eq!(one.events.count(|event| matches!(event, Event::LeafIssued { .. })), 3);
    assert!(one.resolver.current().is_some() && two.resolver.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_ca_that_a_user_stores_is_used_with_overlap() {
    let mut all = Replicas::new(2, &settings()).await;
    let serials = all.serials();
    let other = fresh(&settings(), start()).data;
    store(&all.api, &other);
    all.rounds(5).await;
    assert_eq!(all.serials(), serials);
    all.rounds(3).await;
    assert_ne!(all.serials(), serials);
    assert_eq!(stored(&all.api).leaf, other.leaf);
    assert_eq!(sizes(&all.api), [2, 2], "the CA that it replaced remains for its leaves");
}
