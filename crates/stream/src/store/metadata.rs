//! The metadata of a stream: its schema in every version, its origin, its retention and its names.

use serde::{Deserialize, Serialize};

use super::names::LaterNames;
use super::{DeviceIdentity, StoreError};
use crate::{CodecError, Retention, SCHEMA_VERSIONS_MAX, StreamSchema};

/// The version of the metadata's own format that is written, and the newest that is read.
const FORMAT: u8 = 5;
/// The version without later names.
const FORMAT_WITHOUT_NAMES: u8 = 4;
/// The version without the identity of a device.
const FORMAT_WITHOUT_DEVICE: u8 = 3;
/// The version whose last schema is the current one.
const FORMAT_WITHOUT_CURRENT: u8 = 2;
/// The version without retention.
const FORMAT_WITHOUT_RETENTION: u8 = 1;

/// The metadata of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Metadata {
    /// The origin of the elements: the key of a device, or the name of a virtual sensor.
    pub(super) origin: Option<String>,
    /// Every version of the schema, each with its last descriptions.
    pub(super) versions: Vec<StreamSchema>,
    /// The retention, if the stream has its own.
    pub(super) retention: Option<Retention>,
    /// The index of the version that new elements have.
    pub(super) current: u32,
    /// The device that produces the elements, if it has an identity beyond its key.
    pub(super) device: Option<DeviceIdentity>,
    /// The names that it was given after its definition.
    pub(super) later_names: LaterNames,
}

impl Metadata {
    pub(super) fn new(schema: &StreamSchema, origin: Option<&str>) -> Self {
        Self {
            origin: origin.map(str::to_owned),
            versions: vec![schema.clone()],
            retention: None,
            current: 0,
            device: None,
            later_names: LaterNames::default(),
        }
    }

    /// Accepts another schema, or an origin. Another origin is another device, unless stated
    /// otherwise.
    pub(super) fn describe(
        &mut self,
        schema: &StreamSchema,
        origin: Option<&str>,
        device: Option<&DeviceIdentity>,
    ) -> Result<(), StoreError> {
        self.use_schema(schema)?;
        let Some(origin) = origin else { return Ok(()) };
        let is_another = self.origin.as_deref() != Some(origin);
        if is_another || device.is_some() {
            self.device = device.cloned();
        }
        self.origin = Some(origin.to_owned());
        Ok(())
    }

    pub(super) fn current(&self) -> &StreamSchema {
        // `new`, `decode` and `use_schema` keep the index within the versions.
        &self.versions[self.current as usize]
    }

    /// The number of the current version.
    pub(super) fn current_version(&self) -> u32 {
        self.current
    }

    /// Makes `schema` the current one.
    fn use_schema(&mut self, schema: &StreamSchema) -> Result<(), StoreError> {
        self.current = self.add_schema(schema)?;
        Ok(())
    }

    /// The version of `schema`, which is added if necessary.
    pub(super) fn add_schema(&mut self, schema: &StreamSchema) -> Result<u32, StoreError> {
        let is_version = |version: &StreamSchema| version.equals_but_descriptions(schema);
        let index = match self.versions.iter().rposition(is_version) {
            Some(index) => {
                self.versions[index].clone_from(schema);
                index
            }
            None if self.versions.len() >= SCHEMA_VERSIONS_MAX => return Err(StoreError::Versions),
            None => {
                self.versions.push(schema.clone());
                self.versions.len() - 1
            }
        };
        Ok(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let malformed = |error: postcard::Error| CodecError::Malformed(error.to_string());
        let mut bytes = vec![FORMAT];
        bytes.extend(postcard::to_allocvec(self).map_err(malformed)?);
        Ok(bytes)
    }

    pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<Self, StoreError> {
        let error = || StoreError::Metadata(name.to_owned());
        let (format, bytes) = bytes.split_first().ok_or_else(error)?;
        // The fields of older versions are the first ones of newer.
        let decoded = match *format {
            FORMAT => postcard::from_bytes(bytes),
            FORMAT_WITHOUT_NAMES => {
                postcard::from_bytes(bytes).map(|(origin, versions, retention, current, device)| {
                    Self {
                        current,
                        device,
                        ..Self::with_last(origin, versions, retention)
                    }
                })
            }
            FORMAT_WITHOUT_DEVICE => {
                postcard::from_bytes(bytes).map(|(origin, versions, retention, current)| Self {
                    current,
                    ..Self::with_last(origin, versions, retention)
                })
            }
            FORMAT_WITHOUT_CURRENT => postcard::from_bytes(bytes)
                .map(|(origin, versions, retention)| Self::with_last(origin, versions, retention)),
            FORMAT_WITHOUT_RETENTION => postcard::from_bytes(bytes)
                .map(|(origin, versions)| Self::with_last(origin, versions, None)),
            found if found > FORMAT => {
                let file = format!("the schema of stream {name}");
                return Err(chappe_log::Error::newer_format(file, found, FORMAT).into());
            }
            _ => return Err(error()),
        };
        let metadata: Self = decoded.map_err(|_| error())?;
        if metadata.versions.get(metadata.current as usize).is_none() {
            return Err(error());
        }
        Ok(metadata)
    }

    /// Metadata of an older format: the last version is the current one.
    fn with_last(
        origin: Option<String>,
        versions: Vec<StreamSchema>,
        retention: Option<Retention>,
    ) -> Self {
        let current = u32::try_from(versions.len().saturating_sub(1)).unwrap_or(u32::MAX);
        Self {
            origin,
            versions,
            retention,
            current,
            device: None,
            later_names: LaterNames::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_older_formats_the_last_version_is_the_current_one() {
        let versions = vec![StreamSchema::default(); 3];
        let older = [
            (1, postcard::to_allocvec(&(Some("urn:d"), &versions))),
            (
                2,
                postcard::to_allocvec(&(Some("urn:d"), &versions, None::<Retention>)),
            ),
        ];
        for (format, fields) in older {
            let mut bytes = vec![format];
            bytes.extend(fields.unwrap());
            let metadata = Metadata::decode("a", &bytes).unwrap();
            assert_eq!(metadata.current_version(), 2, "of format {format}");
            assert_eq!(metadata.origin.as_deref(), Some("urn:d"));
            let again = Metadata::decode("a", &metadata.encode().unwrap()).unwrap();
            assert_eq!(again, metadata);
        }
        let none = None::<Retention>;
        let device = DeviceIdentity {
            identity: "i".to_owned(),
            address: "http://192.0.2.7/".to_owned(),
        };
        let without_device = postcard::to_allocvec(&(Some("urn:d"), &versions, none, 1_u32));
        let without_names = (Some("urn:d"), &versions, none, 1_u32, Some(&device));
        for (format, fields, device) in [
            (FORMAT_WITHOUT_DEVICE, without_device, None),
            (
                FORMAT_WITHOUT_NAMES,
                postcard::to_allocvec(&without_names),
                Some(&device),
            ),
        ] {
            let mut bytes = vec![format];
            bytes.extend(fields.unwrap());
            let metadata = Metadata::decode("a", &bytes).unwrap();
            assert_eq!(metadata.current_version(), 1, "of format {format}");
            assert_eq!(metadata.device.as_ref(), device);
            assert_eq!(metadata.later_names.current("a"), "a");
        }
        let newer = Metadata::decode("a", &[FORMAT + 1]).map_err(|error| error.to_string());
        let newer = newer.unwrap_err();
        assert!(newer.contains("the schema of stream a: it has format version 6"));
        let beyond = Metadata {
            current: 1,
            ..Metadata::new(&StreamSchema::default(), None)
        };
        assert!(Metadata::decode("a", &beyond.encode().unwrap()).is_err());
    }

    #[test]
    fn the_identity_of_a_device_is_kept_until_the_stream_has_another_origin() {
        let schema = StreamSchema::default();
        let device = DeviceIdentity {
            identity: "example|t1|7".to_owned(),
            address: "http://192.0.2.7/".to_owned(),
        };
        let mut metadata = Metadata::new(&schema, Some("urn:a"));
        metadata
            .describe(&schema, Some("urn:b"), Some(&device))
            .unwrap();
        for origin in [None, Some("urn:b")] {
            metadata.describe(&schema, origin, None).unwrap();
            let stored = Metadata::decode("a", &metadata.encode().unwrap()).unwrap();
            assert_eq!(stored.device.as_ref(), Some(&device), "after {origin:?}");
        }
        metadata.describe(&schema, Some("sensor"), None).unwrap();
        assert_eq!(metadata.device, None);
    }
}
