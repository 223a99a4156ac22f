"""The panels of the dashboard: rows of panels, each with the question that it answers, its unit and its queries.

A query is (expression, legend). `WINDOW` in an expression is replaced by Grafana's rate interval. A panel of the kind
"table" shows one row per series that the query returns now.
"""

FAIL_OPEN = 'apiserver_admission_webhook_fail_open_count{name=~".*[.]swansong[.]dev"}'


def quantiles(metric):
    histogram = f"sum by (le) (rate({metric}_bucket[WINDOW]))"
    return [(f"histogram_quantile({q}, {histogram})", f"p{round(q * 100)}") for q in (0.5, 0.99)]


def increase(labels, metric, prefix=""):
    legend = prefix + " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))
    return (f"sum by ({labels}) (increase({metric}[WINDOW]))", legend)


ROWS = [
    ("Admissions", [
        ("Were jobs or Pods created without injection?", "timeseries", "short",
         "Anything above zero is the alert SwansongAdmissionSkipped. The API server counts what it admitted without an answer.",
         [increase("name", FAIL_OPEN, "no answer: "), increase("reason", "swansong_reviews_unprocessed_total", "unprocessed: "),
          increase("cause", "swansong_requests_refused_total", "refused: ")]),
        ("What happened to the reviewed jobs and Pods?", "timeseries", "short",
         "injected: changed; complete: had everything; skipped: nothing to do; failed, shed, denied: see the panel before.",
         [increase("kind, result", "swansong_reviews_total")]),
        ("Which warnings do users get?", "timeseries", "short", "Reasons are explained in docs/reasons.md.",
         [increase("reason", "swansong_review_warnings_total")]),
        ("How long does a review take?", "timeseries", "s",
         "From the last byte of a review to its answer. The API server waits five seconds.",
         quantiles("swansong_review_duration_seconds")),
        ("Do clients reach the webhook?", "timeseries", "short",
         "Open connections, and those that failed or were closed, by cause. An API server needs a few connections.",
         [("sum(swansong_connections)", "open"), ("sum(swansong_tls_handshakes_in_progress)", "in the handshake"),
          ("sum(swansong_requests_in_flight)", "requests in flight"),
          ("sum(increase(swansong_connections_accepted_total[WINDOW]))", "accepted"),
          increase("cause", "swansong_tls_handshake_failures_total", "handshake failed: "),
          increase("cause", "swansong_connections_closed_total", "closed: ")]),
        ("When do certificate and CA expire?", "timeseries", "s",
         "Time that remains. A certificate is renewed with 30 of its 90 days left.",
         [("min(swansong_tls_certificate_not_after_timestamp_seconds > 0) - time()", "certificate"),
          ("min(swansong_tls_ca_not_after_timestamp_seconds > 0) - time()", "CA")]),
        ("Does another writer change certificate or caBundle?", "timeseries", "short",
         "A few events at an installation or rotation are normal; a steady rate is another writer that reverts them.",
         [increase("event", "swansong_tls_events_total"), increase("source", "swansong_tls_reload_failures_total", "failed: "),
          ("max(swansong_tls_trusted_cas)", "CAs in the caBundle"), ("max(swansong_tls_next_ca_pending)", "next CA pending")]),
        ("Does each job have its reset-config?", "timeseries", "short",
         "Jobs that ask for a dump, by the state of reset-config-JOB; unusable and denied lose the checkpoint at a fault.",
         [("max by (state) (swansong_reset_config_jobs)", "{{state}}"),
          ("sum(increase(swansong_reset_config_created_total[WINDOW]))", "created"),
          ("sum(increase(swansong_reset_config_restarts_total[WINDOW]))", "controller restarted"),
          increase("operation", "swansong_reset_config_api_errors_total", "failed: ")]),
        ("Do all replicas have one version, configuration and time?", "table", "short",
         "The last column is how far the replica's clock is ahead of the API server's.",
         [("max by (instance, version) (swansong_build_info)", "version"),
          ("max by (instance) (swansong_config_loaded_timestamp_seconds) * 1000", "configuration loaded"),
          ("max by (instance) (swansong_large_body_bytes)", "memory for large reviews"),
          ("max by (instance) (swansong_clock_skew_seconds)", "clock ahead (s)")]),
    ]),
    ("Nodes", [
        ("How many nodes can save a dying checkpoint?", "timeseries", "short",
         "Nodes by the status of their condition DumpReady.", [("sum by (status) (swansong_agent_ready)", "{{status}}")]),
        ("Which checks fail, on how many nodes?", "timeseries", "short", "Checks are explained in docs/agent.md.",
         [('sum by (check) (swansong_agent_check{status="fail"}) > 0', "{{check}}"),
          ('sum by (check) (swansong_agent_check{status="unknown"}) > 0', "unknown: {{check}}")]),
        ("Which nodes aren't ready?", "table", "short", "kubectl describe node NODE names the failing checks.",
         [('max by (instance, status) (swansong_agent_ready{status!="True"} == 1)', "status")]),
        ("Is running training protected?", "timeseries", "short",
         "Containers whose launcher hook or environment is missing lose the checkpoint. A preload that isn't live rarely does.",
         [("sum by (state) (swansong_agent_launcher_hooks)", "launcher hook {{state}}"),
          ("sum(swansong_agent_containers_without_dump_environment)", "without MindIO's address"),
          ("sum by (outcome) (swansong_agent_preload_containers)", "preload {{outcome}}")]),
        ("Do the agents make progress?", "timeseries", "s", "Age of the oldest success of each task, of all nodes.",
         [("time() - min by (task) (swansong_agent_task_last_success_timestamp_seconds > 0)", "{{task}}")]),
        ("Do the agents reach the API server?", "timeseries", "short",
         "Restarted tasks, failed writes and Events. Corrections are changes of another client to the agent's condition or label.",
         [increase("task", "swansong_agent_task_restarts_total", "restarted: "),
          increase("subject", "swansong_agent_api_errors_total", "failed: "),
          increase("result", "swansong_agent_events_total", "Events "),
          increase("cause, result", "swansong_agent_node_writes_total", "write: ")]),
        ("How long do checks and scans take?", "timeseries", "s", "The slowest node. More than two seconds: a slow file system.",
         [("max(swansong_agent_check_duration_seconds)", "checks"),
          ("max(swansong_agent_preload_scan_duration_seconds)", "scan of processes")]),
        ("Do all agents have one version?", "timeseries", "short", "Nodes by version of the agent.",
         [("sum by (version) (swansong_agent_build_info)", "{{version}}")]),
    ]),
    ("Faults", [
        ("Which faults are open, in which phase?", "timeseries", "short",
         "ready, sent and ending wait for ClusterD; confirmed is known to it. Phases are explained in docs/faults.md.",
         [("sum by (phase) (swansong_agent_faults_open)", "{{phase}}")]),
        ("Why are faults not sent?", "timeseries", "short",
         "nothing_saved: ranks would end without a checkpoint; the objections name what is missing.",
         [("sum by (reason) (swansong_agent_faults_blocked)", "{{reason}}"),
          ("sum by (reason) (swansong_agent_fault_objections)", "objection {{reason}}")]),
        ("Were faults reported and accepted?", "timeseries", "short",
         "Faults that sources reported, that ClusterD accepted, and that name devices which can't be.",
         [increase("assertion", "swansong_agent_faults_reported_total", "reported: "),
          increase("assertion", "swansong_agent_faults_accepted_total", "accepted: "),
          ("sum(increase(swansong_agent_faults_dropped_total[WINDOW]))", "dropped"),
          ("sum(swansong_agent_fault_state_persisted == bool 0)", "nodes without state on disk")]),
        ("Does ClusterD accept what is sent?", "timeseries", "short",
         "Batches by transport and answer; refused is ClusterD's 410, invalid its 409. gateway: what it sent.",
         [increase("route, result", "swansong_agent_fault_batches_total"),
          increase("outcome", "swansong_gateway_batches_total", "gateway: "),
          increase("status", "swansong_gateway_requests_total", "gateway answered "),
          ("sum(increase(swansong_gateway_faults_total[WINDOW]))", "faults by the gateway"),
          ("sum(swansong_gateway_queued_requests)", "queued at the gateway")]),
        ("How long until ClusterD knows of a fault?", "timeseries", "s",
         "From its occurrence to its acceptance, with the settle time.", quantiles("swansong_agent_fault_delay_seconds")),
        ("Did jobs that a fault hit save a checkpoint?", "timeseries", "short",
         "dump-success and renamed: saved. Others: see the alert SwansongDumpFailed.",
         [increase("outcome", "swansong_agent_fault_outcomes_total"),
          increase("result", "swansong_agent_fault_ranks_ended_total", "rank of a lost device: ")]),
        ("How long does a dump take?", "timeseries", "s", "From ClusterD's acceptance of the fault to the checkpoint.",
         quantiles("swansong_agent_fault_dump_seconds")),
    ]),
]
