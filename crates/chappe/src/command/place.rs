//! `chappe device replace` and `places`: which device fills which place.

use serde_json::{Value, json};

use super::exclusion::run;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{DeviceReplace, NodeAddress};
use crate::output::{self, Outcome, Table};

/// Lets a device continue the streams of another one.
pub(crate) fn replace(flags: DeviceReplace, json: bool) -> Outcome {
    run(async move {
        let path = format!("/api/v1/devices/{}/replace", percent(&flags.device));
        let body = json!({ "former": flags.former, "place": flags.place });
        let place = NodeClient::new(&flags.node)?.post(&path, body).await?;
        if json {
            output::json(&place);
        } else {
            output::line(format_args!(
                "{} fills {}",
                flags.device,
                text(&place, "place")
            ));
        }
        Ok(())
    })
}

/// Lists the assigned places, and the claims of newcomers to others.
pub(crate) fn list(node: &NodeAddress, json: bool) -> Outcome {
    run(async move {
        let answer = NodeClient::new(node)?.get("/api/v1/devices/places").await?;
        if json {
            output::json(&answer);
            return Ok(());
        }
        let mut table = Table::new(["PLACE", "DEVICE", "SINCE", "BEFORE"]);
        let places = answer["places"].as_array().map_or(&[][..], Vec::as_slice);
        for place in places {
            let former = place["former"].as_array().and_then(|former| former.last());
            let former = former.map_or(String::new(), |former| text(former, "device"));
            table.row([
                text(place, "place"),
                text(place, "device"),
                text(place, "since"),
                former,
            ]);
        }
        match places {
            [] => output::line("no device was replaced"),
            _ => output::line(table),
        }
        if let Some(claims) = answer["claims"].as_array().filter(|all| !all.is_empty()) {
            output::line(claims_table(claims));
        }
        Ok(())
    })
}

/// The places of devices that have left, a line for each newcomer that claims one.
fn claims_table(claims: &[Value]) -> Table {
    let mut table = Table::new(["CLAIMED PLACE", "FORMER DEVICE", "NEWCOMER", "DECISION"]);
    let list = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts
            .map(|one| one.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    for claim in claims {
        let decision = match claim["due"].as_str() {
            Some(due) => format!("by the rule at {due}"),
            None => format!("yours: {}", text(claim, "doubt")),
        };
        for newcomer in list(&claim["devices"]) {
            table.row([
                list(&claim["places"]).join(", "),
                text(claim, "former"),
                newcomer,
                decision.clone(),
            ]);
        }
    }
    table
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
