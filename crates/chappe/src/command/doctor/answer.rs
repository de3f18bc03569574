//! The peer of `chappe doctor --with`: a target service that answers every search.

use std::time::Duration;

use chappe_dpws::discovery::TargetService;
use chappe_dpws::discovery::target_service::{Command, Config, Event};
use chappe_transport::Drops;
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};
use chappe_xml::Name;
use serde_json::json;
use tokio::sync::mpsc;

use crate::command::network;
use crate::output::{self, Failure, Outcome};

/// Time to send the Bye.
const BYE_PATIENCE: Duration = Duration::from_secs(1);

/// Answers until interrupted, and prints each question.
pub(crate) fn run(names: &[String], json: bool) -> Outcome {
    network::block_on(async move {
        let interfaces = network::of_discovery(&network::interfaces(names)?);
        let drops = Drops::default();
        let sockets = UdpSockets::bind(&interfaces, &UdpOptions::new(Role::Device), &drops)
            .map_err(|error| {
                Failure::new(format!("cannot answer: {error}"))
                    .coded("cannot_listen")
                    .hint("find out which program holds the port: chappe doctor")
            })?;
        let seed = chappe_transport::seed_number()?;
        let endpoint = format!(
            "urn:uuid:{:08x}-0000-4000-8000-{:012x}",
            seed >> 32,
            seed >> 16
        );
        let mut config = Config::new(endpoint, u32::try_from(seed >> 33).unwrap_or(1), seed);
        config.types = vec![Name::new("https://chappe.example/ns", "Doctor")];
        config.app_max_delay = Duration::ZERO;
        config.interfaces = interfaces
            .into_iter()
            .map(|one| (one, Vec::new()))
            .collect();
        let (orders, orders_rx) = mpsc::channel(4);
        let (events_tx, mut events) = mpsc::channel(64);
        tokio::spawn(run_udp(
            TargetService::new(config),
            sockets,
            orders_rx,
            events_tx,
            drops,
        ));
        let _ = orders.send(Order::Command(Command::Start)).await;
        output::note("answering; on the other host run: chappe doctor --with THIS_HOST");
        let printing = async {
            while let Some(event) = events.recv().await {
                match event {
                    Event::Answered { to, request } if json => {
                        output::json(
                            &json!({ "event": "answered", "to": to, "question": request }),
                        );
                    }
                    Event::Answered { to, request } => {
                        output::line(format_args!("answered {request} of {to}"));
                    }
                    Event::Stopped => break,
                    _ => {}
                }
            }
        };
        tokio::pin!(printing);
        tokio::select! {
            () = &mut printing => {}
            result = network::interrupted() => result?,
        }
        let _ = orders.send(Order::Command(Command::Stop)).await;
        let _ = tokio::time::timeout(BYE_PATIENCE, printing).await;
        Ok(())
    })
}
