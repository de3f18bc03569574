//! Device classes of Home Assistant, as observed properties (quantity kinds of QUDT) and by the units that they have.

/// The vocabulary of observed properties.
const QUANTITY_KINDS: &str = "http://qudt.org/vocab/quantitykind/";

/// A device class whose values are numbers, the quantity kind, and the UCUM codes by which a field is recognized if
/// nothing else names the class.
struct Class(&'static str, &'static str, &'static [&'static str]);

const CLASSES: &[Class] = &[
    Class("apparent_power", "ApparentPower", &["V.A"]),
    Class("atmospheric_pressure", "AtmosphericPressure", &[]),
    Class("battery", "StateOfCharge", &[]),
    Class("carbon_dioxide", "MoleFraction", &[]),
    Class("carbon_monoxide", "MoleFraction", &[]),
    Class("current", "ElectricCurrent", &["A", "mA"]),
    Class("data_rate", "DataRate", &["bit/s", "By/s"]),
    Class("data_size", "InformationEntropy", &["By"]),
    Class("distance", "Length", &["m", "cm", "mm", "km"]),
    Class("duration", "Time", &["s", "min", "h", "d"]),
    Class("energy", "Energy", &["W.h", "kW.h", "MW.h"]),
    Class("frequency", "Frequency", &["Hz", "kHz", "MHz", "GHz"]),
    Class("humidity", "RelativeHumidity", &[]),
    Class("illuminance", "Illuminance", &["lx"]),
    Class("irradiance", "Irradiance", &["W/m2"]),
    Class("moisture", "VolumeFraction", &[]),
    Class("pm10", "MassConcentration", &[]),
    Class("pm25", "MassConcentration", &[]),
    Class("power", "Power", &["W", "kW"]),
    Class("power_factor", "PowerFactor", &[]),
    Class("precipitation", "Length", &[]),
    Class("pressure", "Pressure", &["Pa", "hPa", "kPa", "bar", "mbar"]),
    Class("reactive_power", "ReactivePower", &[]),
    Class("signal_strength", "SignalStrength", &["dB[mW]"]),
    Class("sound_pressure", "SoundPressureLevel", &[]),
    Class("speed", "Speed", &["m/s", "km/h"]),
    Class("temperature", "Temperature", &["Cel", "[degF]", "K"]),
    Class("voltage", "Voltage", &["V", "mV"]),
    Class("volume", "Volume", &[]),
    Class("water", "Volume", &[]),
    Class("weight", "Mass", &["kg", "g"]),
    Class("wind_speed", "Speed", &[]),
];
/// Parts of names of fields that tell the class of a percentage or a concentration.
const NAMES: [(&str, &str); 4] = [
    ("humid", "humidity"),
    ("batter", "battery"),
    ("moist", "moisture"),
    ("co2", "carbon_dioxide"),
];

/// Whether the values of a sensor of this class are numbers.
pub(super) fn is_number(class: &str) -> bool {
    CLASSES.iter().any(|one| one.0 == class)
}

/// The observed property of a class.
pub(super) fn observed_property(class: &str) -> Option<String> {
    let found = CLASSES.iter().find(|one| one.0 == class)?;
    Some(format!("{QUANTITY_KINDS}{}", found.1))
}

/// The class of a field: by its observed property, else by its unit, else by its name.
pub(super) fn class(
    property: Option<&str>,
    unit: Option<&str>,
    name: &str,
) -> Option<&'static str> {
    let kind = property.and_then(|property| property.strip_prefix(QUANTITY_KINDS));
    // Several classes have the same kind: precipitation and distance are lengths.
    let mut of_kind = CLASSES.iter().filter(|one| Some(one.1) == kind);
    let by_kind = of_kind.next().filter(|_| of_kind.next().is_none());
    let by_unit = || {
        CLASSES
            .iter()
            .find(|one| one.2.iter().any(|code| Some(*code) == unit))
    };
    let by_name = || {
        let is_share = matches!(unit, Some("%" | "[ppm]"));
        let mut names = NAMES.iter().filter(|_| is_share);
        names
            .find(|(part, _)| name.contains(part))
            .map(|(_, class)| *class)
    };
    by_kind.or_else(by_unit).map(|one| one.0).or_else(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_a_property_and_is_found_by_it() {
        for one in CLASSES {
            let property = observed_property(one.0).unwrap();
            let found = class(Some(&property), one.2.first().copied(), "x");
            let is_alone = CLASSES.iter().filter(|it| it.1 == one.1).count() == 1;
            assert_eq!(
                found == Some(one.0),
                is_alone || !one.2.is_empty(),
                "{}",
                one.0
            );
        }
        assert_eq!(class(None, Some("Cel"), "x"), Some("temperature"));
        assert_eq!(class(None, Some("%"), "humidity_in"), Some("humidity"));
        assert_eq!(class(None, Some("%"), "load"), None);
        assert_eq!(observed_property("enum"), None);
    }
}
