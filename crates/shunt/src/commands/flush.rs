//! `shunt flush`.

use crate::{
    command::{Command, Context},
    output::Show,
    render::Counted,
};
use clap::Args;

/// Send every connection back to the slow path, to be learned again.
#[derive(Debug, Args)]
pub(crate) struct FlushArgs;

impl Command for FlushArgs {
    type Plan = ();
    const EXAMPLES: &str = "
        [shunt flush]
        shunt flush # all connections are learned again
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }

    async fn run((): (), context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let count = context.client.post("/v1/flush").await?;
        show(&Counted::new(count, "flow", |flows| format!("{flows} sent back to the slow path")))
    }
}
