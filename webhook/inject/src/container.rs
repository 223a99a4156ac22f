//! Injects one container.

use serde_json::Value;
use swansong_api::env::LD_PRELOAD;
use swansong_api::launcher_hook::site_directory;
use swansong_api::pod::{LIBRARIES, LIBRARIES_FOLDER};
use swansong_api::preload::{entries, file_name};
use swansong_api::record::ContainerRecord;

use crate::context::{ContainerContext, PodContext};
use crate::discovery::{Discovery, LibraryPaths};
use crate::env::{EnvInjection, ttp_port_of};
use crate::launcher_hook::LauncherHook;
use crate::operation::Operation;
use crate::options::Options;
use crate::original::append;
use crate::policy::{NamedPort, Policy};
use crate::ports::{self, Network};
use crate::reason::Reason;
use crate::report::{Action, ContainerReport, Warning};
use crate::reset_config::ResetConfig;
use crate::select::Chosen;
use crate::view::Container;

/// The field of a container's mounts.
pub(crate) const MOUNTS: &str = "volumeMounts";

/// What the containers of a template share.
pub(crate) struct Shared<'t, 'p> {
    pub(crate) hook: LauncherHook<'p>,
    pub(crate) network: Network,
    pub(crate) discovery: Discovery<'t>,
    pub(crate) reset_config: ResetConfig<'t>,
}

/// The injection of one container.
pub(crate) struct ContainerInjection<'t, 'o, 'a, 'p> {
    pub(crate) policy: &'p Policy,
    pub(crate) pod: PodContext,
    pub(crate) options: &'t Options<'p>,
    pub(crate) chosen: Chosen<'o, 'a>,
    /// JSON pointer of the template, and prefix of messages.
    pub(crate) template: (&'t str, &'t str),
}

impl<'o> ContainerInjection<'_, 'o, '_, '_> {
    pub(crate) fn run(
        self,
        shared: &mut Shared<'o, '_>,
        operations: &mut Vec<Operation>,
        warnings: &mut Vec<Warning>,
    ) -> (ContainerReport, ContainerRecord) {
        let Self { policy, pod, options, chosen, template } = self;
        let container = chosen.container;
        let name = container.name();
        let path = chosen.path(template.0);
        let mut record = ContainerRecord::default();
        let mut context = ContainerContext {
            template: template.1,
            container: name,
            actions: Vec::new(),
            operations,
            warnings,
        };
        let mut mounts = Vec::new();
        let libraries = self.libraries(shared, &mut context, &path, &mut mounts, &mut record);
        let libtaskd = effective_libtaskd(container, &libraries.paths);
        let placement = shared.hook.place(container, libtaskd);
        let preload = (!options.skips_preload(name)).then_some((libraries.paths, options.preload_order));
        EnvInjection::new(&mut context, container, policy, pod, &path, &mut record)
            .run(&preload, placement.needs_user_base());
        let ttp_port = NamedPort {
            name: policy.ttp_port.name.clone(),
            port: ttp_port_of(container, &policy.ttp_port).number(),
        };
        let wanted = [ttp_port, policy.taskd_port.clone()];
        ports::inject(&mut context, container, &wanted, &mut shared.network, &path, &mut record);
        mounts.extend(shared.hook.mount(&mut context, container, placement, libtaskd, &mut record));
        if let Some(mount) = shared.reset_config.mount(&mut context, container) {
            record_mount(&mount, &mut record);
            mounts.push(mount);
        }
        let created = (&mut record.absent, &mut record.null);
        append(context.operations, &path, MOUNTS, &container.volume_mounts, &mounts, created);
        (ContainerReport { name: name.to_owned(), actions: context.actions }, record)
    }

    /// The libraries of the container at `path`, and the mount of their links if they are discovered.
    fn libraries(
        &self,
        shared: &mut Shared<'o, '_>,
        context: &mut ContainerContext<'_>,
        path: &str,
        mounts: &mut Vec<Value>,
        record: &mut ContainerRecord,
    ) -> LibraryPaths<'_> {
        const FIELD: &str = "libraries";
        let Self { policy, options, chosen, .. } = self;
        let container = chosen.container;
        let libraries = LibraryPaths::of(options, container.image.text(), policy, true);
        if !libraries.are_discovered {
            return libraries;
        }
        if let Some(reason) = shared.discovery.refusal(container) {
            context.record_action(Action::skipped(FIELD, reason));
            context.warn(reason, refusal(reason));
            return LibraryPaths::of(options, container.image.text(), policy, false);
        }
        if container.mounts(LIBRARIES) {
            context.record_action(Action::kept(FIELD, None, Reason::AlreadyPresent));
        } else {
            let action = Action::added(FIELD, LIBRARIES_FOLDER);
            context.record_action(Action { reason: Reason::LibrariesDiscovered, ..action });
            let mount = serde_json::json!({"name": LIBRARIES, "mountPath": LIBRARIES_FOLDER});
            record_mount(&mount, record);
            mounts.push(mount);
        }
        shared.discovery.request(container, path);
        libraries
    }
}

/// Why the libraries aren't discovered, and what to do.
fn refusal(reason: Reason) -> &'static str {
    match reason {
        Reason::LibrariesOfSeveralImages => {
            "the libraries are searched in the image of another container only; set swansong.dev/libtaskd and \
             swansong.dev/libmspti on the template for the paths of this one"
        }
        Reason::LibrariesFolderMounted => {
            "a volume of yours is mounted over /opt/swansong, so the libraries aren't discovered: mount it elsewhere"
        }
        _ => {
            "the Pod has a volume or container called swansong-libraries, so the libraries aren't discovered: rename it"
        }
    }
}

fn record_mount(mount: &Value, record: &mut ContainerRecord) {
    let text = |key: &str| mount[key].as_str().unwrap_or_default().to_owned();
    record.mounts.insert(text("name"), text("mountPath"));
}

/// The path of libtaskd.so: the one in the user's `LD_PRELOAD` if it shows where TaskD is installed, else ours.
fn effective_libtaskd<'c>(container: &'c Container<'_>, libraries: &[&'c str]) -> &'c str {
    let ours = libraries.last().copied().unwrap_or_default();
    let mut present = entries(container.env_value(LD_PRELOAD).unwrap_or_default());
    let same = |path: &&str| file_name(path) == file_name(ours) && site_directory(path).is_some();
    present.find(same).unwrap_or(ours)
}
