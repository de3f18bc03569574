//! The get calls that need no publisher.
//!
//! Source: UDDI 2.04 API specification, get_bindingDetail, get_businessDetail, get_serviceDetail,
//! get_tModelDetail. Results come in the order of the keys; an unknown key fails the request.

use super::error::{Error, ErrorCode, KeyType};
use super::find::MAX_ROWS;
use super::graph::Graph;
use super::key::{BindingKey, BusinessKey, Key, ServiceKey, TModelKey};
use super::value::{BindingTemplate, BusinessEntity, BusinessService, TModel};
use super::{Owned, decode};
use crate::dictionary::Id;
use crate::uddi_keys::UddiClass;

/// The value of each key.
fn each<K: Key, T>(
    graph: &Graph<'_>,
    keys: &[K],
    (class, kind): (UddiClass, KeyType),
    value: impl Fn(Id) -> Option<T>,
) -> Result<Vec<T>, Error> {
    if keys.len() > MAX_ROWS {
        let detail = format!("{} keys; the limit is {MAX_ROWS}", keys.len());
        return Err(Error::new(ErrorCode::TooManyOptions, detail));
    }
    let values = keys.iter().map(|key| {
        let found = graph.find(*key, class).and_then(&value);
        found.ok_or_else(|| Error::unknown_key(kind, key))
    });
    values.collect()
}

pub(crate) fn bindings(
    graph: &Graph<'_>,
    keys: &[BindingKey],
) -> Result<Vec<BindingTemplate>, Error> {
    let of = (UddiClass::Binding, KeyType::Binding);
    each(graph, keys, of, |id| graph.binding(id))
}

pub(crate) fn services(
    graph: &Graph<'_>,
    keys: &[ServiceKey],
) -> Result<Vec<BusinessService>, Error> {
    let of = (UddiClass::Service, KeyType::Service);
    each(graph, keys, of, |id| graph.service(id))
}

pub(crate) fn businesses(
    graph: &Graph<'_>,
    keys: &[BusinessKey],
) -> Result<Vec<Owned<BusinessEntity>>, Error> {
    let of = (UddiClass::Business, KeyType::Business);
    each(graph, keys, of, |id| {
        let (value, stamp) = graph.business(id)?;
        Some(Owned {
            value,
            authorized_name: stamp.owner,
        })
    })
}

pub(crate) fn tmodels(graph: &Graph<'_>, keys: &[TModelKey]) -> Result<Vec<Owned<TModel>>, Error> {
    let of = (UddiClass::TModel, KeyType::TModel);
    each(graph, keys, of, |id| {
        let entity = graph.entity(id)?;
        let (value, _) = decode::tmodel(&entity)?;
        Some(Owned {
            value,
            authorized_name: entity.owner,
        })
    })
}
