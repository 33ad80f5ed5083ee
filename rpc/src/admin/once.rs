//! JSON in which no key comes twice.
//!
//! Of a key that comes twice in an object the usual readers take the last, and an operator who has written both cannot
//! know which one is in effect.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one JSON value.
///
/// # Errors
/// It is no JSON; or, as an error of its data, a key comes twice in an object.
pub(super) fn parse(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).map(|Once(value)| value)
}

struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Once(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = pairs.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(Error::custom(format!("{key:?} is given twice")));
            }
            let Once(value) = pairs.next_value()?;
            values.insert(key, value);
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_key_twice_is_read_as_it_is() {
        let text = r#" {"a": [1, -2, 3.5, null, true, "x\n"], "b": {"a": {}, "c": 18446744073709551615}} "#;
        let value = json!({
            "a": [1, -2, 3.5, null, true, "x\n"], "b": {"a": {}, "c": u64::MAX}
        });
        assert_eq!(parse(text.as_bytes()).expect("JSON"), value);
    }

    #[test]
    fn a_key_that_comes_twice_is_named_and_is_no_matter_of_syntax() {
        for text in [
            r#"{"max-age": "5s", "max-age": "7s"}"#,
            r#"{"log": {"level": "info", "max-age": 1, "max-age": 1}}"#,
            r#"[{"max-age": 1, "max\u002dage": 1}]"#,
        ] {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.is_data(), "{error}");
            let line = error.to_string();
            assert!(
                line.starts_with("\"max-age\" is given twice at line 1"),
                "{line}"
            );
        }
        for text in ["", "{", "{} {}", "{\"a\": 1,}"] {
            assert!(!parse(text.as_bytes()).expect_err(text).is_data(), "{text}");
        }
    }
}
