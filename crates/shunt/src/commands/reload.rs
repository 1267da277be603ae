//! `shunt reload`: the running daemon reads its configuration file again.

pub(crate) mod view;

use crate::{
    command::{Command, Context},
    failure::unreadable,
    output::Show,
    render::Answer,
};
use clap::Args;
use hyper::Method;
use shunt_api::{Reload, ReloadRequest};
use std::{
    fs,
    path::{Path, PathBuf},
};
use view::Reloaded;

/// Let the running daemon read its configuration file again, and apply what differs.
///
/// The file is checked as by `shunt up --dry-run`. If it is wrong, nothing changes. If a key needs a restart, nothing
/// changes either, unless --partial is given (exit code 31). Flows that do not depend on what changes stay fast.
/// docs/reload.md has the answer for each key. SIGHUP and `systemctl reload` do the same.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// Say what would change, and what each change needs; change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Apply the keys that need no restart although others need one.
    #[arg(long)]
    partial: bool,
    /// With --dry-run: say what this file would change in place of the daemon's own.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Command for ReloadArgs {
    type Plan = ReloadRequest;
    const EXAMPLES: &str = "
        [shunt reload]
        shunt reload --dry-run # what differs from the file, and what each key needs
        shunt reload --dry-run --config new.toml # what another file would change
        shunt reload # apply the file
        shunt reload --partial # apply what needs no restart
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<ReloadRequest> {
        let file = self.config.as_deref().map(super::up::absolute_name).transpose()?;
        if let Some(path) = &file {
            let path = Path::new(path);
            fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        }
        Ok(ReloadRequest { dry_run: self.dry_run, partial: self.partial, file })
    }

    async fn run(plan: ReloadRequest, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let reload: Reload = context.client.send(Method::POST, "/v1/reload", &plan).await?;
        let reloaded = Reloaded { reload, instance: context.instance.to_string() };
        show(&reloaded)?;
        reloaded.failure().map_or(Ok(()), |failure| Err(failure.into()))
    }
}
