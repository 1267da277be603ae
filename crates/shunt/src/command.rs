//! What every command of `shunt` is made of.

use crate::{client::control::Client, output::Show};
use shunt_api::Instance;

/// The global options that a command may need, and its way to the daemon.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) instance: Instance,
    pub(crate) client: Client,
    /// Whether the output is JSON.
    pub(crate) json: bool,
}

/// What names an instance on the command line: nothing for the default one.
pub(crate) fn instance_option(instance: &str) -> String {
    if instance == Instance::default().as_str() { String::new() } else { format!(" --instance {instance}") }
}

/// What to type, and what it does.
pub(crate) type Example = (&'static str, &'static str);

/// The arguments of a command. Its answers are [`Answer`](crate::render::Answer)s.
pub(crate) trait Command: Sized {
    /// The command, resolved against the machine.
    type Plan;
    /// The examples of the command and of those below it, for their help and manual pages. Each is a line: what to
    /// type, ` # `, and what it does. A line such as `[shunt flow add]` names the command of the lines after it.
    const EXAMPLES: &str;
    /// Whether the command asks or starts a daemon. For other commands, `--instance` means nothing.
    const USES_INSTANCE: bool = false;

    /// Reads files, finds programs, makes paths absolute. Changes nothing on the machine.
    fn resolve(self, context: &Context) -> anyhow::Result<Self::Plan>;

    /// Does it, and shows one answer or several. The only step with effects.
    async fn run(plan: Self::Plan, context: &Context, show: Show<'_>) -> anyhow::Result<()>;
}
