//! `shunt flush`.

use crate::{client::control::Client, render::Answer};

pub(crate) async fn run(client: &Client) -> anyhow::Result<Answer> {
    Ok(Answer::Flushed(client.post("/v1/flush").await?))
}
