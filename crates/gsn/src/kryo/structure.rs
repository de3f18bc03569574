//! The structure of a sensor: GSN's output fields.

use super::KryoError;
use super::element::FIELDS_MAX;
use super::reader::Reader;
use super::writer::Writer;

/// GSN's types of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataType {
    /// Text up to a length.
    Varchar,
    /// Text of a length.
    Char,
    /// 32 bits.
    Integer,
    /// 64 bits.
    Bigint,
    /// Bytes.
    Binary,
    /// Double precision.
    Double,
    /// Declared by GSN, and used by none of its wrappers.
    Time,
    /// 8 bits.
    Tinyint,
    /// 16 bits.
    Smallint,
    /// Single precision.
    Float,
}

impl DataType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Varchar,
        Self::Char,
        Self::Integer,
        Self::Bigint,
        Self::Binary,
        Self::Double,
        Self::Time,
        Self::Tinyint,
        Self::Smallint,
        Self::Float,
    ];

    /// The code in frames.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataField {
    /// Its name, mostly in upper case.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// The type as it was declared: `varchar(64)`, `int`.
    pub declared: String,
    /// Its unit, mostly empty.
    pub unit: String,
    /// Its description; `Not Provided` without one.
    pub description: String,
}

/// Reads the answer of a directory: the fields of a sensor, or `None` if it has no such sensor.
///
/// # Errors
/// The frame is anything else.
pub fn decode_structure(frame: &[u8]) -> Result<Option<Vec<DataField>>, KryoError> {
    let mut reader = Reader::new(frame);
    if !reader.new_object()? {
        reader.end()?;
        return Ok(None);
    }
    let count = match reader.length("the structure")? {
        None => return reader.malformed("the structure is null"),
        Some(count) if count > FIELDS_MAX => {
            return Err(KryoError::Limit {
                limit: "fields",
                bound: FIELDS_MAX,
            });
        }
        Some(count) => count,
    };
    let fields = (0..count).map(|_| field(&mut reader));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    reader.end()?;
    Ok(Some(fields))
}

fn field(reader: &mut Reader<'_>) -> Result<DataField, KryoError> {
    if !reader.new_object()? {
        return reader.malformed("a field is null");
    }
    let code = reader.byte("the type of a field")?;
    let Some(data_type) = DataType::from_code(code) else {
        return reader.malformed("a field has an unknown type");
    };
    let description = reader.shared_text("the description of a field")?;
    // Always empty in what a server sends.
    if reader.byte("a field")? != 0 {
        return reader.malformed("the part after the description is not empty");
    }
    let name = reader.shared_text("the name of a field")?;
    let declared = reader.shared_text("the declared type of a field")?;
    let unit = reader.shared_text("the unit of a field")?;
    let Some(name) = name else {
        return reader.malformed("the name of a field is null");
    };
    Ok(DataField {
        name,
        data_type,
        declared: declared.unwrap_or_default(),
        unit: unit.unwrap_or_default(),
        description: description.unwrap_or_default(),
    })
}

/// Writes the answer of a directory: the fields of a sensor, or that there is no such sensor.
///
/// # Errors
/// The fields are more than [`FIELDS_MAX`].
pub fn encode_structure(fields: Option<&[DataField]>) -> Result<Vec<u8>, KryoError> {
    let mut writer = Writer::default();
    let Some(fields) = fields else {
        writer.null();
        return Ok(writer.into_bytes());
    };
    if fields.len() > FIELDS_MAX {
        return Err(KryoError::Unrepresentable {
            name: fields[0].name.clone(),
            what: "the structure has more than 4,096 fields",
        });
    }
    writer.new_object();
    writer.var_u32(fields.len() as u32 + 1);
    for field in fields {
        writer.new_object();
        writer.byte(field.data_type.code());
        writer.shared_text(&field.description);
        writer.null();
        for text in [&field.name, &field.declared, &field.unit] {
            writer.shared_text(text);
        }
    }
    Ok(writer.into_bytes())
}
