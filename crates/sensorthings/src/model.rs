//! The entity types with their properties and links (18-088, clause 8).

/// A type of entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntityType {
    /// A thing of the physical or the information world.
    Thing,
    /// A place of things.
    Location,
    /// The places of a thing at a time.
    HistoricalLocation,
    /// Observations of one property by one sensor at one thing.
    Datastream,
    /// An instrument.
    Sensor,
    /// A phenomenon.
    ObservedProperty,
    /// A result at a time.
    Observation,
    /// What is observed.
    FeatureOfInterest,
}

/// A link from entities of one type to those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link {
    /// Its name in paths.
    pub name: &'static str,
    /// The type at its end.
    pub target: EntityType,
    /// Whether it leads to a set.
    pub is_many: bool,
}

const fn one(name: &'static str, target: EntityType) -> Link {
    Link {
        name,
        target,
        is_many: false,
    }
}

const fn many(target: EntityType) -> Link {
    Link {
        name: target.set_name(),
        target,
        is_many: true,
    }
}

impl EntityType {
    /// All types, in the order of the service root.
    pub const ALL: [Self; 8] = [
        Self::Thing,
        Self::Location,
        Self::HistoricalLocation,
        Self::Datastream,
        Self::Sensor,
        Self::ObservedProperty,
        Self::Observation,
        Self::FeatureOfInterest,
    ];

    /// The name of one entity.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Thing => "Thing",
            Self::Location => "Location",
            Self::HistoricalLocation => "HistoricalLocation",
            Self::Datastream => "Datastream",
            Self::Sensor => "Sensor",
            Self::ObservedProperty => "ObservedProperty",
            Self::Observation => "Observation",
            Self::FeatureOfInterest => "FeatureOfInterest",
        }
    }

    /// The name of the set.
    #[must_use]
    pub const fn set_name(self) -> &'static str {
        match self {
            Self::Thing => "Things",
            Self::Location => "Locations",
            Self::HistoricalLocation => "HistoricalLocations",
            Self::Datastream => "Datastreams",
            Self::Sensor => "Sensors",
            Self::ObservedProperty => "ObservedProperties",
            Self::Observation => "Observations",
            Self::FeatureOfInterest => "FeaturesOfInterest",
        }
    }

    /// The type of a set.
    #[must_use]
    pub fn of_set(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.set_name() == name)
    }

    /// The properties, the id not included, in the order of an answer.
    #[must_use]
    pub const fn properties(self) -> &'static [&'static str] {
        match self {
            Self::Thing => &["name", "description", "properties"],
            Self::Location => &[
                "name",
                "description",
                "encodingType",
                "location",
                "properties",
            ],
            Self::HistoricalLocation => &["time"],
            Self::Datastream => &[
                "name",
                "description",
                "observationType",
                "unitOfMeasurement",
                "observedArea",
                "phenomenonTime",
                "resultTime",
                "properties",
            ],
            Self::Sensor => &[
                "name",
                "description",
                "encodingType",
                "metadata",
                "properties",
            ],
            Self::ObservedProperty => &["name", "definition", "description", "properties"],
            Self::Observation => &[
                "phenomenonTime",
                "result",
                "resultTime",
                "resultQuality",
                "validTime",
                "parameters",
            ],
            Self::FeatureOfInterest => &[
                "name",
                "description",
                "encodingType",
                "feature",
                "properties",
            ],
        }
    }

    /// The links.
    #[must_use]
    pub const fn links(self) -> &'static [Link] {
        match self {
            Self::Thing => {
                const LINKS: &[Link] = &[
                    many(EntityType::Location),
                    many(EntityType::HistoricalLocation),
                    many(EntityType::Datastream),
                ];
                LINKS
            }
            Self::Location => {
                const LINKS: &[Link] = &[
                    many(EntityType::Thing),
                    many(EntityType::HistoricalLocation),
                ];
                LINKS
            }
            Self::HistoricalLocation => {
                const LINKS: &[Link] =
                    &[many(EntityType::Location), one("Thing", EntityType::Thing)];
                LINKS
            }
            Self::Datastream => {
                const LINKS: &[Link] = &[
                    one("Thing", EntityType::Thing),
                    one("Sensor", EntityType::Sensor),
                    one("ObservedProperty", EntityType::ObservedProperty),
                    many(EntityType::Observation),
                ];
                LINKS
            }
            Self::Sensor | Self::ObservedProperty => {
                const LINKS: &[Link] = &[many(EntityType::Datastream)];
                LINKS
            }
            Self::Observation => {
                const LINKS: &[Link] = &[
                    one("Datastream", EntityType::Datastream),
                    one("FeatureOfInterest", EntityType::FeatureOfInterest),
                ];
                LINKS
            }
            Self::FeatureOfInterest => {
                const LINKS: &[Link] = &[many(EntityType::Observation)];
                LINKS
            }
        }
    }

    /// The link of this name.
    #[must_use]
    pub fn link(self, name: &str) -> Option<Link> {
        self.links().iter().copied().find(|link| link.name == name)
    }

    /// Whether it has this property; the id has two names.
    #[must_use]
    pub fn has_property(self, name: &str) -> bool {
        is_id(name) || self.properties().contains(&name)
    }
}

/// Whether this is a name of the id.
#[must_use]
pub fn is_id(name: &str) -> bool {
    matches!(name, "id" | "@iot.id")
}

/// Whether a property is a time or a period.
#[must_use]
pub fn is_time(name: &str) -> bool {
    matches!(name, "phenomenonTime" | "resultTime" | "validTime" | "time")
}

/// Whether a property may have members that a path can name.
#[must_use]
pub fn has_members(name: &str) -> bool {
    matches!(
        name,
        "properties"
            | "parameters"
            | "unitOfMeasurement"
            | "location"
            | "feature"
            | "observedArea"
            | "metadata"
            | "result"
            | "resultQuality"
    )
}
