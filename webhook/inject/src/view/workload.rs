//! Views of workloads, in which pod templates are.

use super::json::view;
use super::{Metadata, Ordered, Slot, Template, Text};

view! {
    /// View of a workload other than a Pod.
    pub struct Workload<'a> {
        /// The object's kind.
        pub kind: "kind" => Slot<Text<'a>>,
        /// The job's own metadata.
        pub metadata: "metadata" => Slot<Metadata<'a>>,
        /// The job's spec.
        pub spec: "spec" => Slot<WorkloadSpec<'a>>,
    }
}

view! {
    /// The fields in which the supported kinds have pod templates.
    pub struct WorkloadSpec<'a> {
        /// Replica types of an AscendJob.
        pub replica_specs: "replicaSpecs" => Slot<Ordered<'a, Slot<Holder<'a>>>>,
        /// Tasks of a Volcano Job.
        pub tasks: "tasks" => Slot<Vec<Holder<'a>>>,
        /// Template of a Deployment, StatefulSet or Job.
        pub template: "template" => Slot<Template<'a>>,
        /// Job template of a CronJob.
        pub job_template: "jobTemplate" => Slot<JobTemplate<'a>>,
        /// Number of pods of a Deployment or StatefulSet.
        pub replicas: "replicas" => Slot<i64>,
        /// Number of pods that a Job runs at a time.
        pub parallelism: "parallelism" => Slot<i64>,
        /// How an AscendJob ends.
        pub run_policy: "runPolicy" => Slot<RunPolicy<'a>>,
    }
}

view! {
    /// View of `spec.runPolicy` of an AscendJob.
    pub struct RunPolicy<'a> {
        /// Which Pods are deleted when the job has ended.
        pub clean_pod_policy: "cleanPodPolicy" => Slot<Text<'a>>,
    }
}

view! {
    /// View of an object with a `template`.
    pub struct Holder<'a> {
        /// The name of a task.
        pub name: "name" => Slot<Text<'a>>,
        /// The pod template.
        pub template: "template" => Slot<Template<'a>>,
        /// Number of pods of a replica type or task.
        pub replicas: "replicas" => Slot<i64>,
        /// How many pods the Job of a CronJob runs at a time.
        pub parallelism: "parallelism" => Slot<i64>,
    }
}

view! {
    /// View of `spec.jobTemplate` of a CronJob.
    pub struct JobTemplate<'a> {
        pub spec: "spec" => Slot<Holder<'a>>,
    }
}
