//! What a request says, with the drawn key filled in.
//!
//! Owns: templates for descriptors, paths and headers. Promises: a template is parsed once and
//! rendered without failing. Never: knows a protocol.

use crate::limits::MAX_DESCRIPTORS;
use crate::mix::Draw;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Key,
    Number,
    Hits,
}

/// Text with `{key}` (the drawn key), `{n}` (the request's number) and `{hits}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// Why a template cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TemplateError {
    /// A `{` that starts nothing known.
    #[error("`{0}`: only {{key}}, {{n}} and {{hits}} can stand in braces")]
    Braces(String),
    /// A descriptor without `=`.
    #[error("descriptor `{0}`: write KEY=VALUE or KEY=VALUE,KEY2=VALUE2")]
    Descriptor(String),
    /// A header without `:`.
    #[error("header `{0}`: write NAME: VALUE")]
    Header(String),
    /// None, or too many descriptors.
    #[error("{0} descriptors: from 1 to {MAX_DESCRIPTORS} can be sent")]
    Count(usize),
}

impl Template {
    /// Parses `text`.
    ///
    /// # Errors
    /// Braces around anything but `key`, `n` or `hits`.
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let (name, tail) = after
                .split_once('}')
                .ok_or_else(|| TemplateError::Braces(text.to_owned()))?;
            parts.push(match name {
                "key" => Part::Key,
                "n" => Part::Number,
                "hits" => Part::Hits,
                _ => return Err(TemplateError::Braces(text.to_owned())),
            });
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template(parts))
    }

    /// The text for one request.
    pub fn render(&self, draw: &Draw, n: u64) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Key => out.push_str(&draw.key),
                Part::Number => out.push_str(&n.to_string()),
                Part::Hits => out.push_str(&draw.hits.unwrap_or(1).to_string()),
            }
        }
        out
    }
}

/// One descriptor: its entries in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorTemplate(pub Vec<(String, Template)>);

impl DescriptorTemplate {
    /// Parses `KEY=VALUE,KEY2=VALUE2`; values are templates.
    ///
    /// # Errors
    /// An entry without `=` or without a key, or a bad template.
    pub fn parse(text: &str) -> Result<DescriptorTemplate, TemplateError> {
        let mut entries = Vec::new();
        for item in text.split(',') {
            let (key, value) = item
                .split_once('=')
                .ok_or_else(|| TemplateError::Descriptor(text.to_owned()))?;
            if key.is_empty() {
                return Err(TemplateError::Descriptor(text.to_owned()));
            }
            entries.push((key.to_owned(), Template::parse(value)?));
        }
        Ok(DescriptorTemplate(entries))
    }
}

/// Which field of a rate-limit request carries the hits that a draw asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitsField {
    /// `RateLimitRequest.hits_addend`.
    Request,
    /// `hits_addend` of each descriptor.
    Descriptor,
}

/// What is sent, apart from the key.
#[derive(Clone, Debug)]
pub enum Shape {
    /// `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit` over gRPC.
    Grpc {
        /// The domain of the rules.
        domain: String,
        /// The descriptors of each request.
        descriptors: Vec<DescriptorTemplate>,
        /// Where the hits go.
        hits: HitsField,
    },
    /// A GET over HTTP/1.1; 429 means denied.
    Http {
        /// Path and query.
        path: Template,
        /// Extra headers.
        headers: Vec<(String, Template)>,
    },
}

impl Shape {
    /// Builds the gRPC shape from texts as a person writes them.
    ///
    /// # Errors
    /// A descriptor that does not parse, none, or too many.
    pub fn grpc(
        domain: &str,
        descriptors: &[String],
        hits: HitsField,
    ) -> Result<Shape, TemplateError> {
        if descriptors.is_empty() || descriptors.len() > MAX_DESCRIPTORS {
            return Err(TemplateError::Count(descriptors.len()));
        }
        let descriptors = descriptors.iter().map(|d| DescriptorTemplate::parse(d));
        let descriptors = descriptors.collect::<Result<_, _>>()?;
        Ok(Shape::Grpc {
            domain: domain.to_owned(),
            descriptors,
            hits,
        })
    }

    /// Builds the HTTP shape from texts as a person writes them.
    ///
    /// # Errors
    /// A template or header that does not parse.
    pub fn http(path: &str, headers: &[String]) -> Result<Shape, TemplateError> {
        let mut parsed = Vec::new();
        for header in headers {
            let (name, value) = header
                .split_once(':')
                .ok_or_else(|| TemplateError::Header(header.clone()))?;
            parsed.push((name.trim().to_owned(), Template::parse(value.trim())?));
        }
        Ok(Shape::Http {
            path: Template::parse(path)?,
            headers: parsed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_fill_in_key_and_number() {
        let draw = Draw {
            key: "alice".into(),
            hits: None,
        };
        let text = |t: &str| Template::parse(t).unwrap().render(&draw, 42);
        assert_eq!(text("/u/{key}?i={n}"), "/u/alice?i=42");
        assert_eq!(text("plain"), "plain");
        assert_eq!(text("{key}{key}"), "alicealice");
        assert_eq!(text(""), "");
        assert_eq!(text("{hits}"), "1");
        assert!(Template::parse("{user}").is_err());
        assert!(Template::parse("{key").is_err());
    }

    #[test]
    fn descriptors_keep_their_order() {
        let descriptor = DescriptorTemplate::parse("tenant={key},path=/a=b").unwrap();
        let keys: Vec<&str> = descriptor.0.iter().map(|(k, _)| k.as_str()).collect();
        assert_eq!(keys, ["tenant", "path"]);
        assert_eq!(descriptor.0[1].1, Template::parse("/a=b").unwrap());
        assert!(DescriptorTemplate::parse("tenant").is_err());
        assert!(DescriptorTemplate::parse("=x").is_err());
    }

    #[test]
    fn shapes_refuse_what_cannot_be_sent() {
        assert!(Shape::grpc("d", &[], HitsField::Request).is_err());
        let many = vec!["a=b".to_owned(); MAX_DESCRIPTORS + 1];
        assert!(Shape::grpc("d", &many, HitsField::Request).is_err());
        assert!(Shape::http("/", &["no colon".to_owned()]).is_err());
        assert!(Shape::http("/{key}", &["x-user: {key}".to_owned()]).is_ok());
    }
}
