use super::*;

fn event(message: &str, is_state: bool) -> Event {
    Event {
        regarding: node_reference("n"),
        warning: true,
        reason: "R",
        message: message.to_owned(),
        annotations: BTreeMap::new(),
        is_state,
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_one_event_with_a_count() {
    let mut joined = JoinedEvents::default();
    let mut written = 0;
    for number in 0..200 {
        joined.add(event(&format!("number {number}"), false));
        while let Some(key) = joined.take_pending() {
            let entry = joined.entries.get_mut(&key).expect("an entry");
            entry.sent_count = entry.count;
            written += 1;
        }
    }
    assert_eq!(written, BURST);
    let due = joined.next_due().expect("the rest is pending");
    tokio::time::advance(due.duration_since(Instant::now())).await;
    let key = joined.take_pending().expect("due");
    let entry = &joined.entries[&key];
    assert_eq!((entry.count, entry.event.message.as_str()), (200, "number 199"));
    assert_eq!(joined.entries.len(), 1);
}

#[tokio::test]
async fn an_event_of_a_namespace_that_is_being_deleted_is_dropped() {
    let status = json!({
        "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "events \"n.1\" is forbidden: unable to create new content in namespace n because it is being terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
    });
    let other = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "message": "no right"});
    for (status, is_dropped) in [(status, true), (other, false)] {
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let body = kube::client::Body::from(status.to_string().into_bytes());
            let response = http::Response::builder().status(403).body(body).expect("a response");
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let mut joined = JoinedEvents::default();
        joined.add(event("m", false));
        let key = joined.take_pending().expect("pending");
        let entry = joined.entries.get_mut(&key).expect("an entry");
        let written = write(&Client::new(service, "default"), entry, "component", "host").await;
        assert_eq!((written.is_ok(), entry.is_pending()), (is_dropped, !is_dropped), "{written:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_has_one_name_and_one_count() {
    let (mut first, mut second) = (JoinedEvents::default(), JoinedEvents::default());
    for _ in 0..3 {
        first.add(event("both", true));
    }
    second.add(event("both", true));
    let entries = |joined: &JoinedEvents| {
        joined.entries.values().map(|e| (e.name.clone(), e.count)).collect::<Vec<_>>()
    };
    assert_eq!(entries(&first), entries(&second));
    tokio::time::advance(LIFETIME).await;
    let key = first.take_pending().expect("pending");
    first.entries.get_mut(&key).expect("an entry").sent_count = 1;
    first.expire();
    assert!(first.entries.is_empty());
}
