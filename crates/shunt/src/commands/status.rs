//! `shunt status`.

use crate::{client::control::Client, render::Answer};

pub(crate) async fn run(client: &Client) -> anyhow::Result<Answer> {
    Ok(Answer::Status(client.get("/v1/status").await?))
}
