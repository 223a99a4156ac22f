//! Changes of authority and of leaf, whole, against an API server in memory.

use std::time::Duration;

use serde_json::json;
use swansong_certs::{Event, ManageError, RETIRED, ROTATE, Renewal, SERVING, Stage};

use crate::crew::{Crew, REPLICA_EXPIRY, ROUND, SETTLE, settings};
use crate::fake_api::{CONFIGURATION, FakeApi, SECRET};
use crate::replica::{Replica, bundles, sizes, stored, trusted};
use crate::support::{DAY, fresh, start};

fn is_stage(stage: Stage) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Authorities { stage: told, .. } if *told == stage)
}

#[tokio::test(start_paused = true)]
async fn an_authority_is_changed_by_hand_with_overlap() {
    let mut crew = Crew::new(3, &settings()).await;
    let before = stored(&crew.api);
    let serials = crew.serials();
    assert_eq!(serials.len(), 1);

    crew.request("ca");
    crew.look().await;
    assert_eq!(sizes(&crew.api), [2, 2], "old and new");
    crew.rounds(5).await;
    assert_eq!(
        crew.serials(),
        serials,
        "the old leaf is served until the API servers know the new authority"
    );
    assert_eq!(stored(&crew.api).certificate, before.certificate);
    assert_eq!(crew.annotation(ROTATE).as_deref(), Some("ca"), "not done yet");

    crew.pass(2 * ROUND).await;
    let after = stored(&crew.api);
    assert_ne!(after.authority_certificate, before.authority_certificate);
    assert_ne!(crew.serials(), serials);
    assert_eq!(crew.serials().len(), 1);
    assert_eq!(crew.annotation(ROTATE), None, "done");
    assert_eq!(sizes(&crew.api), [2, 2], "the old one until nobody needs it");
    assert_eq!(after.ledger.iter().count(), 3);
    assert!(crew.annotation(SERVING).unwrap().contains("webhook-2="));

    crew.pass(REPLICA_EXPIRY).await;
    assert_eq!(sizes(&crew.api), [1, 1]);
    assert!(trusted(&crew.api));
    assert_eq!(crew.annotation(SERVING), None, "cleaned");
    assert_eq!(crew.annotation(RETIRED).unwrap().len(), 16);
    let end = stored(&crew.api);
    assert!(end.previous.is_empty() && end.next_certificate.is_empty() && end.next_key.is_empty());
    assert_eq!(crew.seen(|event| matches!(event, Event::AuthorityAnnounced { .. })), 1);
    assert_eq!(crew.seen(|event| matches!(event, Event::AuthorityPromoted { .. })), 1);
    assert_eq!(crew.seen(|event| matches!(event, Event::AuthorityRetired { .. })), 1);
    assert_eq!(crew.seen(|event| matches!(event, Event::AuthorityFound { .. })), 0);
    for stage in [Stage::Announced, Stage::Overlap] {
        assert_eq!(crew.seen(is_stage(stage)), 3, "{stage}");
    }

    crew.api.take_log();
    crew.pass(Duration::from_mins(10)).await;
    assert!(crew.api.take_log().iter().all(|line| line.starts_with("GET")), "and then peace");
}

#[tokio::test(start_paused = true)]
async fn a_leaf_is_renewed_by_hand_at_once() {
    let mut crew = Crew::new(2, &settings()).await;
    let (before, serials) = (stored(&crew.api), crew.serials());
    crew.request("leaf");
    crew.look().await;
    assert_ne!(crew.serials(), serials);
    assert_eq!(crew.serials().len(), 1);
    assert_eq!(crew.annotation(ROTATE), None);
    assert_eq!(stored(&crew.api).authority_certificate, before.authority_certificate);
    assert_eq!(crew.seen(|event| matches!(event, Event::LeafIssued { .. })), 2);
}

#[tokio::test(start_paused = true)]
async fn what_an_annotation_asks_for_in_vain_is_told_once_and_left_there() {
    let mut crew = Crew::new(1, &settings()).await;
    crew.request("everything");
    crew.pass(Duration::from_mins(1)).await;
    let told = crew.replicas[0].events.take();
    let told: Vec<_> = told.iter().filter(|event| matches!(event, Event::RequestIgnored { .. })).collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].to_string().contains(r#"says "everything", which is ignored; it can be ca or leaf"#));
    assert_eq!(crew.annotation(ROTATE).as_deref(), Some("everything"));
}

#[tokio::test(start_paused = true)]
async fn an_authority_is_changed_long_before_its_end_and_a_leaf_before_its() {
    let mut crew = Crew::new(2, &settings()).await;
    let (before, serials) = (stored(&crew.api), crew.serials());
    crew.sleep(61 * DAY);
    crew.look().await;
    assert_ne!(crew.serials(), serials);
    assert_eq!(stored(&crew.api).authority_certificate, before.authority_certificate);
    let due = |event: &Event| matches!(event, Event::LeafIssued { reason, .. } if reason.contains("one before ends"));
    assert_eq!(crew.seen(due), 1);

    // Ten years and the hour of backdating; two thirds of that are over.
    crew.sleep(2373 * DAY);
    crew.look().await;
    crew.pass(SETTLE + REPLICA_EXPIRY + 4 * ROUND).await;
    assert_ne!(stored(&crew.api).authority_certificate, before.authority_certificate);
    assert_eq!(sizes(&crew.api), [1, 1]);
    let due = |event: &Event| matches!(event, Event::AuthorityAnnounced { reason, .. } if reason.contains("one before ends"));
    assert_eq!(crew.seen(due), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_ended_while_nobody_ran_is_renewed_at_start_and_said_so() {
    let crew = Crew::new(1, &settings()).await;
    let before = stored(&crew.api);
    let mut late = Replica::with(&crew.api, settings(), "late");
    late.clock.set(start() + 91 * DAY);
    late.manager.ensure().await.unwrap();
    assert_eq!(stored(&crew.api).authority_certificate, before.authority_certificate);
    assert_ne!(stored(&crew.api).certificate, before.certificate);
    let told = late.events.take();
    assert!(
        matches!(&told[0], Event::LeafIssued { reason, .. } if reason.contains("expired at 2027-02-")),
        "{told:?}"
    );

    // Where it can't be renewed, that is an error that says what to do, and the old one is still better than none.
    let mut barred = Replica::with(&crew.api, settings(), "barred");
    barred.manager.ensure().await.unwrap();
    barred.clock.set(start() + 200 * DAY);
    crew.api.refuse(&http::Method::PUT, 403, 1);
    let error = barred.manager.ensure().await.unwrap_err().to_string();
    assert!(error.contains("can't update Secret") && error.contains("RBAC"), "{error}");
    assert!(barred.resolver.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn lives_of_seconds_go_on_and_on() {
    let mut brief = settings();
    brief.authority_validity = Duration::from_mins(4);
    brief.leaf_validity = Duration::from_mins(1);
    brief.settle = Duration::from_secs(20);
    brief.replica_expiry = Duration::from_secs(30);
    let mut crew = Crew::new(2, &brief).await;
    let mut most = 0;
    for _ in 0..180 {
        crew.pass(ROUND).await;
        let now = start() + Duration::from_mins(30);
        assert!(crew.replicas.iter().all(|replica| {
            let pair = replica.resolver.current().unwrap();
            pair.not_after() > std::cmp::min(now, swansong_certs::Clock::now(&replica.clock))
        }));
        most = most.max(sizes(&crew.api)[0]);
    }
    assert_eq!(most, 2);
    let authorities = crew.seen(|event| matches!(event, Event::AuthorityPromoted { .. }));
    let leaves = crew.seen(|event| matches!(event, Event::LeafIssued { .. }));
    assert!((9..=14).contains(&authorities), "{authorities} in half an hour");
    assert!((40..=70).contains(&leaves), "{leaves} in half an hour");
    assert_eq!(crew.seen(|event| matches!(event, Event::AuthorityIssued { .. })), 1, "never in haste");
}

#[test]
fn a_renewal_that_is_asked_for_earlier_than_half_a_life_comes_at_half() {
    let end = start() + 100 * DAY;
    let rows = [
        (Renewal::TwoThirds, start() + 99 * DAY / 3 * 2 + DAY / 3 * 2),
        (Renewal::Before(30 * DAY), start() + 70 * DAY),
        (Renewal::Before(80 * DAY), start() + 50 * DAY),
        (Renewal::Before(Duration::ZERO), end),
    ];
    for (renewal, due) in rows {
        assert_eq!(renewal.due(start(), end), due, "{renewal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_still_serves_the_old_leaf_is_waited_for_and_one_that_is_gone_is_not() {
    let mut crew = Crew::new(2, &settings()).await;
    crew.request("ca");
    crew.rounds(4).await;
    // It takes the old leaf, and by its own clock the settle time begins only now.
    let mut late = Replica::with(&crew.api, settings(), "webhook-late");
    late.clock.set(start() + SETTLE - 2 * ROUND);
    late.manager.ensure().await.unwrap();
    let old = late.serial();
    crew.replicas.push(late);
    crew.pass(4 * ROUND).await;
    assert_eq!(crew.replicas[2].serial(), old);
    assert_ne!(crew.replicas[0].serial(), old);
    let entry = stored(&crew.api).ledger.get("webhook-late").cloned().unwrap();
    assert_ne!(&entry.serves, &stored(&crew.api).ledger.get("webhook-0").unwrap().serves);

    // Then nothing is heard of it any more.
    let late = crew.replicas.pop();
    crew.rounds(12).await;
    assert_eq!(sizes(&crew.api), [2, 2]);
    crew.pass(8 * ROUND).await;
    assert_eq!(sizes(&crew.api), [1, 1]);
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn an_authority_whose_key_is_lost_is_replaced_with_overlap() {
    let mut crew = Crew::new(2, &settings()).await;
    let serials = crew.serials();
    crew.api.edit(SECRET, |secret| secret["data"]["ca.key"] = json!("Z2FyYmFnZQ=="));
    crew.rounds(5).await;
    assert_eq!(crew.serials(), serials);
    // A replica that starts now serves the leaf that is trusted.
    let mut newcomer = Replica::new(&crew.api);
    newcomer.manager.ensure().await.unwrap();
    assert_eq!(newcomer.serial(), serials[0]);
    crew.pass(REPLICA_EXPIRY + 4 * ROUND).await;
    assert_ne!(crew.serials(), serials);
    assert_eq!(sizes(&crew.api), [1, 1]);
    let told = |event: &Event| matches!(event, Event::AuthorityAnnounced { reason, .. } if reason.contains("ca.key holds no private key"));
    assert_eq!(crew.seen(told), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_is_made_anew_while_the_old_leaf_is_served_until_the_new_one_is_trusted() {
    let mut crew = Crew::new(2, &settings()).await;
    let serials = crew.serials();
    crew.api.delete(SECRET);
    crew.rounds(5).await;
    assert_eq!(crew.serials(), serials);
    assert_eq!(sizes(&crew.api), [2, 2]);
    crew.pass(REPLICA_EXPIRY + 4 * ROUND).await;
    assert_ne!(crew.serials(), serials);
    assert_eq!(crew.serials().len(), 1);
    assert_eq!(sizes(&crew.api), [1, 1]);
    assert_eq!(crew.seen(|event| matches!(event, Event::AuthorityFound { .. })), 1);
    let told = |event: &Event| matches!(event, Event::AuthorityIssued { reason, .. } if reason.contains("there was none"));
    assert_eq!(crew.seen(told), 2, "at the beginning and now");
}

#[tokio::test(start_paused = true)]
async fn a_retired_authority_that_an_old_manifest_brings_back_goes_again() {
    let mut crew = Crew::new(1, &settings()).await;
    let old = bundles(&crew.api)[0].clone();
    crew.request("ca");
    crew.pass(SETTLE + REPLICA_EXPIRY + 4 * ROUND).await;
    assert_eq!(sizes(&crew.api), [1, 1]);
    let text = serde_json::to_value(k8s_openapi::ByteString(old)).unwrap();
    crew.api.edit(CONFIGURATION, |object| object["webhooks"][0]["clientConfig"]["caBundle"] = text.clone());
    crew.look().await;
    assert_eq!(sizes(&crew.api), [1, 1]);
    assert!(trusted(&crew.api));
}

#[tokio::test(start_paused = true)]
async fn a_successor_isnt_taken_into_use_before_it_is_in_the_bundle_of_every_webhook() {
    let mut crew = Crew::new(1, &settings()).await;
    let before = stored(&crew.api);
    let bundle = serde_json::to_value(k8s_openapi::ByteString(bundles(&crew.api)[0].clone())).unwrap();
    crew.request("ca");
    crew.rounds(5).await;
    // A tool puts the old manifest back, and does so again between the look and the step.
    crew.api.edit(CONFIGURATION, |object| object["webhooks"][1]["clientConfig"]["caBundle"] = bundle);
    tokio::time::advance(2 * ROUND).await;
    crew.look().await;
    assert_eq!(stored(&crew.api).authority_certificate, before.authority_certificate);
    crew.rounds(5).await;
    assert_eq!(stored(&crew.api).authority_certificate, before.authority_certificate, "waits anew");
    crew.pass(2 * ROUND).await;
    assert_ne!(stored(&crew.api).authority_certificate, before.authority_certificate);
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_off_go_by_the_api_servers() {
    let mut crew = Crew::new(3, &settings()).await;
    let (before, serials) = (stored(&crew.api), crew.serials());
    crew.api.set_time(start() + DAY);
    crew.replicas[0].clock.set(start() + 400 * DAY);
    crew.replicas[1].clock.set(start() - 400 * DAY);
    crew.replicas[2].clock.set(start() + DAY + Duration::from_mins(1));
    crew.api.take_log();
    for _ in 0..5 {
        crew.look().await;
    }
    assert_eq!(stored(&crew.api), before);
    assert_eq!(crew.serials(), serials);
    assert!(crew.api.take_log().iter().all(|line| line.starts_with("GET")));
    let told: Vec<_> = crew.replicas.iter().map(|replica| replica.events.take()).collect();
    let off =
        |events: &[Event]| events.iter().filter(|event| matches!(event, Event::ClockOff { .. })).count();
    assert_eq!(told.iter().map(|events| off(events)).collect::<Vec<_>>(), [1, 1, 0], "{told:?}");
    let text = told[0].iter().find(|event| matches!(event, Event::ClockOff { .. })).unwrap().to_string();
    assert!(text.contains("is 34473600 s ahead of the API server's"), "{text}");
    crew.replicas[0].clock.set(start() + DAY);
    crew.look().await;
    assert_eq!(crew.replicas[0].events.take(), [Event::ClockRight]);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_undo_each_other_stop_doing_so() {
    let api = FakeApi::new();
    // Two Deployments of different names on one Secret.
    let mut other = settings();
    other.dns_names = swansong_certs::service_names("other", "swansong");
    let (mut one, mut two) = (Replica::new(&api), Replica::with(&api, other, "two"));
    let mut undone = 0;
    for _ in 0..30 {
        for replica in [&mut one, &mut two] {
            match replica.manager.ensure().await {
                Ok(()) => {}
                Err(ManageError::Undone { object, times: 3, reason, .. }) => {
                    assert!(
                        object.contains("swansong-webhook-tls") && reason.contains("not for"),
                        "{reason}"
                    );
                    undone += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        tokio::time::advance(ROUND).await;
    }
    assert!(undone > 20, "{undone}");
    assert_eq!(one.events.seen(|event| matches!(event, Event::LeafIssued { .. })), 3);
    assert!(one.resolver.current().is_some() && two.resolver.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_authority_put_there_by_hand_is_taken_over_with_overlap() {
    let mut crew = Crew::new(2, &settings()).await;
    let serials = crew.serials();
    let other = fresh(&settings(), start()).data;
    crew.api.edit(SECRET, |secret| {
        for (key, part) in [
            ("ca.crt", &other.authority_certificate),
            ("ca.key", &other.authority_key),
            ("tls.crt", &other.certificate),
            ("tls.key", &other.key),
        ] {
            secret["data"][key] = serde_json::to_value(k8s_openapi::ByteString(part.clone())).unwrap();
        }
    });
    crew.rounds(5).await;
    assert_eq!(crew.serials(), serials);
    crew.pass(REPLICA_EXPIRY + 4 * ROUND).await;
    assert_ne!(crew.serials(), serials);
    assert_eq!(stored(&crew.api).certificate, other.certificate);
    assert_eq!(sizes(&crew.api), [1, 1]);
}
