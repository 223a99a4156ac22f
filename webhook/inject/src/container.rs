//! Injects one container.

use swansong_api::env::LD_PRELOAD;
use swansong_api::launcher_hook::site_directory;
use swansong_api::preload::{entries, file_name};
use swansong_api::record::ContainerRecord;

use crate::context::{ContainerContext, PodContext};
use crate::env::{EnvInjection, ttp_port_of};
use crate::launcher_hook::LauncherHook;
use crate::operation::Operation;
use crate::options::Options;
use crate::policy::{NamedPort, Policy};
use crate::ports::{self, Network};
use crate::report::{ContainerReport, Warning};
use crate::select::Chosen;
use crate::view::Container;

/// The injection of one container.
pub(crate) struct ContainerInjection<'t, 'o, 'a, 'p> {
    pub(crate) policy: &'p Policy,
    pub(crate) pod: PodContext,
    pub(crate) options: &'t Options<'p>,
    pub(crate) chosen: Chosen<'o, 'a>,
    /// JSON pointer of the template, and prefix of messages.
    pub(crate) template: (&'t str, &'t str),
}

impl ContainerInjection<'_, '_, '_, '_> {
    pub(crate) fn run(
        self,
        hook: &mut LauncherHook<'_>,
        network: &mut Network,
        operations: &mut Vec<Operation>,
        warnings: &mut Vec<Warning>,
    ) -> (ContainerReport, ContainerRecord) {
        let Self { policy, pod, options, chosen: Chosen { list, index, container }, template } = self;
        let name = container.name();
        let path = format!("{}/spec/{list}/{index}", template.0);
        let mut record = ContainerRecord::default();
        let libraries = libraries(options, container.image.text(), policy);
        let libtaskd = effective_libtaskd(container, &libraries);
        let preload = (!options.skips_preload(name)).then_some((libraries, options.preload_order));
        let mut context = ContainerContext {
            template: template.1,
            container: name,
            actions: Vec::new(),
            operations,
            warnings,
        };
        EnvInjection::new(&mut context, container, policy, pod, &path, &mut record).run(&preload);
        let ttp_port = NamedPort {
            name: policy.ttp_port.name.clone(),
            port: ttp_port_of(container, &policy.ttp_port).number(),
        };
        let wanted = [ttp_port, policy.taskd_port.clone()];
        ports::inject(&mut context, container, &wanted, network, &path, &mut record);
        hook.mount(&mut context, container, &path, libtaskd, &mut record);
        (ContainerReport { name: name.to_owned(), actions: context.actions }, record)
    }
}

/// The libraries of a container, libtaskd.so last: from the annotation, else from the rule for its image, else the
/// default.
fn libraries<'p>(options: &Options<'p>, image: &str, policy: &'p Policy) -> Vec<&'p str> {
    let rule = policy.image_rules.iter().find(|rule| rule.matches(image));
    let pick = |annotation: Option<&'p str>, ruled: Option<&'p String>, default: &'p String| {
        annotation.or(ruled.map(String::as_str)).unwrap_or(default)
    };
    let libmspti =
        pick(options.libmspti, rule.and_then(|rule| rule.libmspti.as_ref()), &policy.libraries.libmspti);
    let libtaskd =
        pick(options.libtaskd, rule.and_then(|rule| rule.libtaskd.as_ref()), &policy.libraries.libtaskd);
    if libmspti == libtaskd { vec![libmspti] } else { vec![libmspti, libtaskd] }
}

/// The path of libtaskd.so: the one in the user's `LD_PRELOAD` if it shows where TaskD is installed, else ours.
fn effective_libtaskd<'c>(container: &'c Container<'_>, libraries: &[&'c str]) -> &'c str {
    let ours = libraries.last().copied().unwrap_or_default();
    let mut present = entries(container.env_value(LD_PRELOAD).unwrap_or_default());
    let same = |path: &&str| file_name(path) == file_name(ours) && site_directory(path).is_some();
    present.find(same).unwrap_or(ours)
}
