//! Finds the Kubernetes objects of a document, including those in Lists.

use swansong_inject::reason::Reason;
use swansong_inject::workload::WorkloadKind;

use super::data::Data;
use super::error::{DocumentError, Problem};
use super::source::Document;

/// A document or an item of a List.
#[derive(Debug)]
pub struct Object<'d> {
    /// JSON pointer in its document; empty for the document itself.
    pub path: String,
    /// Prefix of its fields, such as `items[2].`; empty for the document itself.
    pub field: String,
    /// Its `kind`, for an item of a typed list also from the list; empty if there is none.
    pub kind: String,
    /// The kind of workload, or why it isn't one that Swansong changes.
    pub workload: Result<WorkloadKind, Reason>,
    /// `metadata.name`, else `metadata.generateName`.
    pub name: String,
    /// Its `metadata.namespace`; empty if it has none.
    pub namespace: String,
    /// The object's value.
    pub data: &'d Data,
    inherited_kind: bool,
}

impl Object<'_> {
    /// The object as JSON with its kind.
    pub fn to_json(&self) -> String {
        match self.data {
            Data::Mapping(members) if self.inherited_kind => {
                let kind = ("kind".to_owned(), Data::String(self.kind.clone()));
                Data::Mapping(std::iter::once(kind).chain(members.iter().cloned()).collect()).to_json()
            }
            data => data.to_json(),
        }
    }

    /// `namespace/name`, without the parts that it doesn't have.
    pub fn place(&self) -> String {
        let parts = [self.namespace.as_str(), self.name.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }

    pub fn metadata(&self, field: &str) -> Option<&Data> {
        self.data.get("metadata")?.get(field)
    }
}

/// The objects of a document; none if it is empty.
pub fn objects(document: &Document) -> Result<Vec<Object<'_>>, DocumentError> {
    let mut found = Vec::new();
    match &document.data {
        Data::Null => {}
        Data::Mapping(_) => {
            Collector { document, found: &mut found }.collect(&document.data, String::new(), "", None)?;
        }
        other => {
            return Err(document.error(document.root.line, Problem::NotAnObject(other.describe())));
        }
    }
    Ok(found)
}

struct Collector<'d, 'f> {
    document: &'d Document,
    found: &'f mut Vec<Object<'d>>,
}

impl<'d> Collector<'d, '_> {
    fn collect(
        &mut self,
        data: &'d Data,
        path: String,
        field: &str,
        inherited: Option<(&str, &str)>,
    ) -> Result<(), DocumentError> {
        let own_kind = self.text(data, "kind", field)?;
        let api_version = self.text(data, "apiVersion", field)?;
        let kind = own_kind.or(inherited.map(|(_, kind)| kind)).unwrap_or_default();
        let api_version = api_version.or(inherited.map(|(version, _)| version)).unwrap_or_default();
        let item_kind = kind.strip_suffix("List").filter(|item_kind| match *item_kind {
            "" => matches!(api_version, "" | "v1"),
            item_kind => WorkloadKind::of(api_version, item_kind).is_some(),
        });
        if let (Some(item_kind), Some(items)) = (item_kind, data.get("items"))
            && let Data::Sequence(items) = items
            && !items.is_empty()
        {
            let inherited = (!item_kind.is_empty()).then_some((api_version, item_kind));
            for (index, item) in items.iter().enumerate() {
                let field = format!("{field}items[{index}].");
                if !matches!(item, Data::Mapping(_)) {
                    return Err(self.wrong(field.trim_end_matches('.'), item, "a mapping"));
                }
                self.collect(item, format!("{path}/items/{index}"), &field, inherited)?;
            }
            return Ok(());
        }
        if let (Some(""), Some(items)) = (item_kind, data.get("items"))
            && !matches!(items, Data::Null | Data::Sequence(_))
        {
            return Err(self.wrong(&format!("{field}items"), items, "a list"));
        }
        let workload = if kind.is_empty() {
            Err(Reason::KindMissing)
        } else {
            WorkloadKind::of(api_version, kind).ok_or(Reason::KindNotHandled)
        };
        let metadata = |name| data.get("metadata").and_then(|metadata| metadata.get(name)?.as_str());
        self.found.push(Object {
            path,
            field: field.to_owned(),
            kind: kind.to_owned(),
            workload,
            name: metadata("name").or(metadata("generateName")).unwrap_or_default().to_owned(),
            namespace: metadata("namespace").unwrap_or_default().to_owned(),
            data,
            inherited_kind: own_kind.is_none() && inherited.is_some(),
        });
        Ok(())
    }

    /// A member that is a string, `null` or absent.
    fn text(&self, data: &'d Data, key: &str, field: &str) -> Result<Option<&'d str>, DocumentError> {
        match data.get(key) {
            None | Some(Data::Null) => Ok(None),
            Some(Data::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(&format!("{field}{key}"), other, "a string")),
        }
    }

    fn wrong(&self, field: &str, found: &Data, expected: &'static str) -> DocumentError {
        let line = self.document.line_of_field(field);
        let field = field.to_owned();
        self.document.error(line, Problem::Field { field, found: found.describe(), expected })
    }
}
