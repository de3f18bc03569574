//! Makes the subscription: finds the nodes of the file, asks for their units, and monitors them.

use std::sync::Arc;
use std::time::Duration;

use opcua_core::ResponseMessage;
use opcua_types::{
    BrowsePath, CreateMonitoredItemsRequest, CreateSubscriptionRequest, DataChangeFilter,
    DataChangeTrigger, EUInformation, ExtensionObject, MonitoredItemCreateRequest, MonitoringMode,
    MonitoringParameters, NodeId, QualifiedName, ReadValueId, ReferenceTypeId, RelativePath,
    RelativePathElement, StatusCode, TimestampsToReturn, TransferSubscriptionsRequest, Variant,
};

use ring::rand::{SecureRandom as _, SystemRandom};

use super::connection::{ANSWER_TIME, Connection, Fault, REQUEST_NODES, counted, value_of};
use super::follow::{Follower, Subscription};
use super::node::NodeAddress;
use super::settings::{Deadband, Node};
use super::value::Unit;

/// Longest time between two notifications, or signs of life, that are asked for.
const ALIVE_TIME: Duration = Duration::from_secs(10);
/// Time without requests after which the server may forget the subscription.
const LIFE_TIME: Duration = Duration::from_secs(600);
/// Most values of one notification; reason: a message has at most 4 MiB.
const NOTIFICATION_VALUES: u32 = 2_000;
/// The longest one that is taken from a server; ten times the longest that a file asks for.
const ALIVE_MAX: Duration = Duration::from_secs(600);
/// The root folder of all nodes.
const ROOT: u32 = 84;

/// The node behind a row of browse names.
pub(super) fn browse_path(
    start: NodeId,
    reference: ReferenceTypeId,
    steps: &[QualifiedName],
) -> BrowsePath {
    let element = |name: &QualifiedName| RelativePathElement {
        reference_type_id: reference.into(),
        is_inverse: false,
        include_subtypes: true,
        target_name: name.clone(),
    };
    BrowsePath {
        starting_node: start,
        relative_path: RelativePath {
            elements: Some(steps.iter().map(element).collect()),
        },
    }
}

/// The nodes behind paths, in order; none for a path that leads nowhere.
pub(super) async fn resolve(
    connection: &Connection,
    paths: Vec<BrowsePath>,
) -> Result<Vec<Result<NodeId, StatusCode>>, Fault> {
    let mut found = Vec::new();
    for chunk in paths.chunks(REQUEST_NODES) {
        for result in connection.translate(chunk.to_vec()).await? {
            let mut targets = result.targets.unwrap_or_default().into_iter();
            // A target with a rest of the path is in another server.
            let target = targets.find(|it| it.remaining_path_index == u32::MAX);
            found.push(match target {
                Some(target) if !result.status_code.is_bad() => Ok(target.target_id.node_id),
                _ if result.status_code.is_bad() => Err(result.status_code),
                _ => Err(StatusCode::BadNoMatch),
            });
        }
    }
    Ok(found)
}

/// Reads values of nodes, in order.
pub(super) async fn read_values(
    connection: &Connection,
    nodes: Vec<ReadValueId>,
) -> Result<Vec<Option<Variant>>, Fault> {
    let mut values = Vec::new();
    for chunk in nodes.chunks(REQUEST_NODES) {
        let read = connection.read(chunk.to_vec()).await?;
        values.extend(read.into_iter().map(|value| match value.status().is_bad() {
            true => None,
            false => value.value,
        }));
    }
    Ok(values)
}

/// The property with this name of each node, in order.
pub(super) async fn properties(
    connection: &Connection,
    nodes: &[NodeId],
    name: &str,
) -> Result<Vec<Option<Variant>>, Fault> {
    let name = [QualifiedName::new(0, name)];
    let paths = nodes.iter();
    let paths = paths.map(|node| browse_path(node.clone(), ReferenceTypeId::HasProperty, &name));
    let found = resolve(connection, paths.collect()).await?;
    let there: Vec<ReadValueId> = found.iter().flatten().map(value_of).collect();
    let mut values = read_values(connection, there).await?.into_iter();
    Ok(found
        .into_iter()
        .map(|it| it.ok().and_then(|_| values.next()?))
        .collect())
}

/// The units of nodes, in order.
pub(super) async fn units(
    connection: &Connection,
    nodes: &[NodeId],
) -> Result<Vec<Option<Unit>>, Fault> {
    let found = properties(connection, nodes, "EngineeringUnits").await?;
    let unit = |value: Option<Variant>| match value {
        Some(Variant::ExtensionObject(object)) => Unit::of(object.inner_as::<EUInformation>()?),
        _ => None,
    };
    Ok(found.into_iter().map(unit).collect())
}

/// Takes a subscription of another session over; returns false if the server has it no longer.
///
/// # Errors
/// The connection failed.
pub(super) async fn transfer(connection: &Connection, id: u32) -> Result<bool, Fault> {
    let build = |request_header| TransferSubscriptionsRequest {
        request_header,
        subscription_ids: Some(vec![id]),
        send_initial_values: false,
    };
    let results = connection
        .request(ANSWER_TIME, build, |answer| match answer {
            ResponseMessage::TransferSubscriptions(it) => Ok((it.response_header, it.results)),
            other => Err(other),
        })
        .await;
    match results {
        Ok(results) => {
            let mut results = results.unwrap_or_default().into_iter();
            Ok(results.next().is_some_and(|it| it.status_code.is_good()))
        }
        // A server need not have the service.
        Err(fault) if !fault.is_disconnect() => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Makes the subscription of a file. A node that is not there is named, and the others are followed.
///
/// # Errors
/// The connection failed, or no node is there.
pub(super) async fn create(
    follower: &mut Follower,
    connection: &Connection,
) -> Result<Subscription, Fault> {
    let nodes = find(follower, connection).await?;
    adopt_units(follower, connection, &nodes).await?;
    let interval = follower.plan.publishing;
    let count = |time: Duration| {
        let count = time.as_millis() / interval.as_millis().max(1);
        u32::try_from(count).unwrap_or(u32::MAX).max(1)
    };
    let alive = count(ALIVE_TIME);
    let build = |request_header| CreateSubscriptionRequest {
        request_header,
        requested_publishing_interval: interval.as_secs_f64() * 1_000.0,
        requested_lifetime_count: count(LIFE_TIME).max(3 * alive),
        requested_max_keep_alive_count: alive,
        max_notifications_per_publish: NOTIFICATION_VALUES,
        publishing_enabled: true,
        priority: 0,
    };
    let made = connection
        .request(ANSWER_TIME, build, |answer| match answer {
            ResponseMessage::CreateSubscription(it) => {
                let count = f64::from(it.revised_max_keep_alive_count);
                let alive_s = it.revised_publishing_interval * count / 1_000.0;
                let alive = Duration::try_from_secs_f64(alive_s)
                    .unwrap_or(ALIVE_MAX)
                    .min(ALIVE_MAX);
                Ok((it.response_header, (it.subscription_id, alive)))
            }
            other => Err(other),
        })
        .await?;
    let (id, alive) = made;
    let first_handle = first_handle()?;
    let there: Vec<(usize, NodeId)> = nodes
        .iter()
        .enumerate()
        .filter_map(|(index, id)| Some((index, id.clone()?)))
        .collect();
    let mut faults = 0;
    for chunk in there.chunks(REQUEST_NODES) {
        let items = chunk.iter().filter_map(|(index, id)| {
            let node = follower.plan.nodes.get(*index)?;
            let handle = first_handle.wrapping_add(u32::try_from(*index).ok()?);
            Some(item(node, handle, id))
        });
        let items: Vec<_> = items.collect();
        let build = |request_header| CreateMonitoredItemsRequest {
            request_header,
            subscription_id: id,
            timestamps_to_return: TimestampsToReturn::Both,
            items_to_create: Some(items),
        };
        let results = connection.request(ANSWER_TIME, build, |answer| match answer {
            ResponseMessage::CreateMonitoredItems(it) => Ok((it.response_header, it.results)),
            other => Err(other),
        });
        let results = counted(results.await?, chunk.len())?;
        for ((index, _), result) in chunk.iter().zip(results) {
            if result.status_code.is_bad() {
                fault(follower, *index, result.status_code);
                faults += 1;
            }
        }
    }
    if faults == there.len() {
        let first = follower.faults.iter().find_map(|(it, _)| it.clone());
        let text = format!(
            "none of the nodes can be followed: {}",
            first.unwrap_or_default()
        );
        return Err(Fault::new(StatusCode::BadNodeIdUnknown, text));
    }
    Ok(Subscription {
        id,
        nodes,
        numbers: Default::default(),
        first_handle,
        alive,
    })
}

/// A handle by lot; the others follow it.
fn first_handle() -> Result<u32, Fault> {
    let mut bytes = [0; 4];
    let filled = SystemRandom::new().fill(&mut bytes);
    let failed = |_| {
        Fault::new(
            StatusCode::BadUnexpectedError,
            "the system has no random numbers",
        )
    };
    filled.map_err(failed)?;
    // Not 0, which some servers take for none.
    Ok((u32::from_be_bytes(bytes) >> 1) | 1)
}

fn item(node: &Node, client_handle: u32, id: &NodeId) -> MonitoredItemCreateRequest {
    let filter = node.deadband.map(|deadband| {
        // The numbers of part 4, section 7.22.2.
        let (deadband_type, deadband_value) = match deadband {
            Deadband::Absolute(value) => (1, value),
            Deadband::Percent(value) => (2, value),
        };
        ExtensionObject::from_message(DataChangeFilter {
            trigger: DataChangeTrigger::StatusValue,
            deadband_type,
            deadband_value,
        })
    });
    MonitoredItemCreateRequest {
        item_to_monitor: value_of(id),
        monitoring_mode: MonitoringMode::Reporting,
        requested_parameters: MonitoringParameters {
            client_handle,
            sampling_interval: node.sampling_ms,
            filter: filter.unwrap_or_else(ExtensionObject::null),
            queue_size: node.queue_size,
            discard_oldest: true,
        },
    }
}

fn fault(follower: &mut Follower, index: usize, status: StatusCode) {
    let text = format!("{}: {status}", follower.name(index));
    follower.notes.add(text.clone());
    if let Some((fault, _)) = follower.faults.get_mut(index) {
        *fault = Some(text);
    }
}

/// The ids of the nodes of a file.
async fn find(
    follower: &mut Follower,
    connection: &Connection,
) -> Result<Vec<Option<NodeId>>, Fault> {
    for (fault, _) in &mut follower.faults {
        *fault = None;
    }
    let (mut paths, mut of_paths) = (Vec::new(), Vec::new());
    let mut nodes: Vec<Option<NodeId>> = Vec::new();
    for (index, node) in follower.plan.nodes.iter().enumerate() {
        nodes.push(match &node.address {
            NodeAddress::Id(id) => Some(id.clone()),
            NodeAddress::Path(steps) => {
                let root = NodeId::new(0, ROOT);
                paths.push(browse_path(
                    root,
                    ReferenceTypeId::HierarchicalReferences,
                    steps,
                ));
                of_paths.push(index);
                None
            }
        });
    }
    for (index, found) in of_paths.into_iter().zip(resolve(connection, paths).await?) {
        match found {
            Ok(id) => nodes[index] = Some(id),
            Err(status) => fault(follower, index, status),
        }
    }
    if nodes.iter().all(Option::is_none) {
        let first = follower.faults.iter().find_map(|(it, _)| it.clone());
        let text = format!("no node is there: {}", first.unwrap_or_default());
        return Err(Fault::new(StatusCode::BadNoMatch, text));
    }
    Ok(nodes)
}

/// Gives fields without a unit that of the server. A unit without a counterpart is named in the field's description.
async fn adopt_units(
    follower: &mut Follower,
    connection: &Connection,
    nodes: &[Option<NodeId>],
) -> Result<(), Fault> {
    let is_number = |index: usize| {
        use chappe_stream::FieldType::{Double, Integer, Samples};
        let node = follower.plan.nodes.get(index);
        node.is_some_and(|it| matches!(it.field_type, Double | Integer | Samples))
    };
    let asked = nodes
        .iter()
        .enumerate()
        .filter(|(index, _)| is_number(*index));
    let asked: Vec<(usize, NodeId)> = asked
        .filter_map(|(index, id)| Some((index, id.clone()?)))
        .collect();
    let ids: Vec<NodeId> = asked.iter().map(|(_, id)| id.clone()).collect();
    let units = match units(connection, &ids).await {
        // A server need not have the services.
        Err(fault) if !fault.is_disconnect() => return Ok(()),
        units => units?,
    };
    for ((index, _), unit) in asked.iter().zip(units) {
        let (Some(unit), Some(node)) = (unit, follower.plan.nodes.get(*index)) else {
            continue;
        };
        let Some(group) = follower.groups.get_mut(node.group) else {
            continue;
        };
        let Some(known) = follower.plan.groups.get(node.group) else {
            continue;
        };
        let wanted = &known.definition.schema.fields[node.field];
        let definition = Arc::make_mut(&mut group.definition);
        let field = &mut definition.schema.fields[node.field];
        match (unit, &wanted.unit) {
            (Unit::Ucum(code), None) => field.unit = Some(code),
            (Unit::Text(text), None) => {
                let about = wanted.description.iter().cloned();
                let parts: Vec<String> = about.chain([format!("unit: {text}")]).collect();
                field.description = Some(parts.join("; "));
            }
            (Unit::Ucum(code), Some(wanted)) if code != *wanted => {
                let text = format!(
                    "{:?} ({}): the server says {code}, the file {wanted}",
                    node.name, node.address
                );
                follower.notes.add(text);
            }
            _ => {}
        }
    }
    Ok(())
}
