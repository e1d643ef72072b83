//! The configuration: creating, reading, merging, building.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use gabion_rule::{KeyHasher, Place};
use gabion_table::RawMem;
use nginx_sys::{ngx_command_t, ngx_conf_t, ngx_http_complex_value_t, ngx_int_t, ngx_str_t};

use super::text::{self, Text};
use super::{caught, code, log, pool, shm, vars};
use crate::catalog::{Bound, Catalog};
use crate::error::ConfError;
use crate::gossip::shared_hasher;
use crate::level::{Domain, Level, Names};
use crate::limits::BODY_TYPE_DEFAULT;
use crate::settings::Settings;
use crate::zone::{Kept, Zone};

/// A zone in memory that workers share.
pub(super) type SharedZone = Zone<RawMem>;

/// nginx's form of one rule's texts.
pub(super) struct Compiled {
    pub(super) bindings: Vec<Text>,
    pub(super) except_if: Option<Text>,
    pub(super) only_if: Option<Text>,
    /// What its denials answer.
    pub(super) body: Option<Body>,
}

/// What is made of a whole configuration.
pub(super) struct Ready {
    pub(super) settings: Arc<Settings>,
    pub(super) catalog: Catalog,
    /// Set with the first zone's memory when nobody else shares it.
    pub(super) hasher: OnceLock<KeyHasher>,
    pub(super) compiled: Vec<Compiled>,
    /// By slot of the attributes that rules ask for.
    pub(super) sources: Vec<Text>,
    /// The status, for rules that are charged once it is known.
    pub(super) status: Option<Text>,
    /// What new zones are given; set with the first of them.
    pub(super) identity: OnceLock<Kept>,
    /// Set when nginx has mapped the memory; by index of the catalog's zones.
    pub(super) zones: Vec<OnceLock<Arc<SharedZone>>>,
}

/// The module's part of `http`.
#[derive(Default)]
pub(super) struct MainConf {
    settings: Settings,
    pub(super) ready: Option<Ready>,
}

/// A response of one's own to a rejected request.
#[derive(Clone, Copy)]
pub(super) struct Body {
    pub(super) value: ngx_http_complex_value_t,
    pub(super) content_type: ngx_str_t,
}

/// The module's part of a location.
#[derive(Default)]
pub(super) struct LocConf {
    pub(super) level: Level,
    pub(super) body: Option<Body>,
    /// Whether requests are asked here.
    pub(super) asks: bool,
    /// Whether each rule here is asked by its bindings alone, and knows of no other.
    pub(super) is_plain: bool,
    /// Indices of the catalog's rules that are named here.
    pub(super) rules: Box<[u16]>,
    /// Whose rules with `match: request` are asked, too.
    pub(super) domain: Option<Box<str>>,
    /// How `gabion_status` answers here.
    pub(super) report: Option<super::status::Form>,
}

const REFUSED: *mut c_char = usize::MAX as *mut c_char; // NGX_CONF_ERROR
const TAKEN: *mut c_char = ptr::null_mut(); // NGX_CONF_OK

pub(super) unsafe extern "C" fn create_main(cf: *mut ngx_conf_t) -> *mut c_void {
    caught(ptr::null_mut(), || {
        // SAFETY: nginx hands a valid configuration.
        unsafe { pool::boxed((*cf).pool, MainConf::default()).cast() }
    })
}

pub(super) unsafe extern "C" fn create_loc(cf: *mut ngx_conf_t) -> *mut c_void {
    caught(ptr::null_mut(), || {
        // SAFETY: nginx hands a valid configuration.
        unsafe { pool::boxed((*cf).pool, LocConf::default()).cast() }
    })
}

/// Name and arguments of the directive that is being read.
///
/// # Safety
/// `cf` is a configuration at a directive; the result is used before the next one is read.
pub(super) unsafe fn words<'a>(cf: *mut ngx_conf_t) -> Result<Vec<&'a str>, ConfError> {
    // SAFETY: nginx keeps the words of a directive in `args`, an array of strings.
    let args = unsafe { (*(*cf).args).as_slice::<ngx_str_t>() };
    let mut words = Vec::with_capacity(args.len());
    for arg in args {
        // SAFETY: the bytes live in the configuration's pool, longer than the directive.
        let bytes = unsafe { std::slice::from_raw_parts(arg.data, arg.len) };
        match std::str::from_utf8(bytes) {
            Ok(word) => words.push(word),
            Err(_) => {
                let directive = words.first().copied().unwrap_or("gabion");
                let value = String::from_utf8_lossy(bytes);
                return Err(ConfError::new(directive, value, "it is not text in UTF-8"));
            }
        }
    }
    Ok(words)
}

/// # Safety
/// `cf` is a valid configuration.
unsafe fn place(cf: *mut ngx_conf_t) -> Place {
    // SAFETY: the caller's promise; there is no file for directives of the command line.
    unsafe {
        let file = (*cf).conf_file;
        if file.is_null() {
            return Place::new("command line", 0, 0);
        }
        let name = String::from_utf8_lossy((*file).file.name.as_bytes()).into_owned();
        Place::new(name, u32::try_from((*file).line).unwrap_or(0), 0)
    }
}

/// The folder of nginx's main configuration file, which nginx takes relative paths from; it ends in
/// a slash.
///
/// # Safety
/// `cf` is a valid configuration.
unsafe fn folder(cf: *mut ngx_conf_t) -> String {
    // SAFETY: the caller's promise; a cycle keeps its prefix as long as it lives.
    unsafe { String::from_utf8_lossy((*(*cf).cycle).conf_prefix.as_bytes()).into_owned() }
}

/// `path` as nginx reads it.
fn in_folder(folder: &str, path: &str) -> String {
    if path.is_empty() || path.starts_with('/') {
        return path.to_owned();
    }
    format!("{folder}{path}")
}

/// # Safety
/// `cf` is a valid configuration.
unsafe fn outcome(cf: *mut ngx_conf_t, result: Result<(), ConfError>) -> *mut c_char {
    match result {
        Ok(()) => TAKEN,
        Err(error) => {
            // SAFETY: the caller's promise.
            unsafe { log::refuse(cf, &error.to_string()) };
            REFUSED
        }
    }
}

/// A directive of `http`.
pub(super) unsafe extern "C" fn main_directive(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    caught(REFUSED, || {
        // SAFETY: nginx hands what `create_main` made, and nobody else uses it now.
        let main = unsafe { &mut *conf.cast::<MainConf>() };
        // SAFETY: `cf` is at a directive.
        let result = unsafe { words(cf) }.and_then(|words| match words.split_first() {
            Some((name, args)) => {
                // SAFETY: `cf` is valid.
                let (folder, place) = unsafe { (folder(cf), place(cf)) };
                let path = (args.len() == 1 && name.ends_with("_file"))
                    .then(|| in_folder(&folder, args[0]));
                match &path {
                    Some(path) => main.settings.apply(name, &[path], place),
                    None => main.settings.apply(name, args, place),
                }
            }
            None => Ok(()),
        });
        // SAFETY: `cf` is valid.
        unsafe { outcome(cf, result) }
    })
}

/// A directive of a location, a server or `http`.
pub(super) unsafe extern "C" fn loc_directive(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    caught(REFUSED, || {
        // SAFETY: nginx hands what `create_loc` made, and nobody else uses it now.
        let loc = unsafe { &mut *conf.cast::<LocConf>() };
        // SAFETY: `cf` is at a directive.
        let result = unsafe { words(cf) }.and_then(|words| match words.split_first() {
            Some((name, args)) => {
                // SAFETY: `cf` is within `http`.
                unsafe { take_names(cf, name, args) };
                loc.level.apply(name, args)
            }
            None => Ok(()),
        });
        // SAFETY: `cf` is valid.
        unsafe { outcome(cf, result) }
    })
}

/// Notes what a level names, since only that must be bound.
///
/// # Safety
/// `cf` is valid and within `http`.
unsafe fn take_names(cf: *mut ngx_conf_t, name: &str, args: &[&str]) {
    let named = match name {
        "gabion_domain" | "gabion_limit" => args.iter().filter(|arg| **arg != "off"),
        _ => return,
    };
    // SAFETY: what `create_main` made, which nobody else uses while a directive is read.
    let Some(main) = (unsafe { shm::main_conf_at(cf).as_mut() }) else {
        return;
    };
    let known = &mut main.settings.named;
    let known = match name {
        "gabion_domain" => &mut known.domains,
        _ => &mut known.rules,
    };
    known.extend(named.map(|name| (*name).to_owned()));
}

/// `gabion_reject_body TEXT [TYPE]`.
pub(super) unsafe extern "C" fn body_directive(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    caught(REFUSED, || {
        // SAFETY: nginx hands what `create_loc` made, and nobody else uses it now.
        let loc = unsafe { &mut *conf.cast::<LocConf>() };
        // SAFETY: `cf` is at a directive.
        let result = unsafe { words(cf) }.and_then(|words| {
            let bad = |why: &str| ConfError::new("gabion_reject_body", words[1..].join(" "), why);
            if loc.body.is_some() {
                return Err(bad(
                    "it was given at this level already; keep one of the two",
                ));
            }
            let kind = words.get(2).copied().unwrap_or(BODY_TYPE_DEFAULT);
            if !kind.contains('/') {
                return Err(bad(
                    "the second value is a content type, such as application/json",
                ));
            }
            // SAFETY: `cf` is valid, its pool too.
            unsafe {
                let no_memory = || bad("nginx has no memory");
                let value =
                    text::complex(cf, words[1]).ok_or_else(|| bad("it cannot be compiled"))?;
                let content_type =
                    pool::copied((*cf).pool, kind.as_bytes()).ok_or_else(no_memory)?;
                loc.body = Some(Body {
                    value,
                    content_type,
                });
            }
            Ok(())
        });
        // SAFETY: `cf` is valid.
        unsafe { outcome(cf, result) }
    })
}

/// The whole of `http` is read: rules are built and given to zones.
pub(super) unsafe extern "C" fn init_main(cf: *mut ngx_conf_t, conf: *mut c_void) -> *mut c_char {
    caught(REFUSED, || {
        // SAFETY: nginx hands what `create_main` made, and nobody else uses it now.
        let main = unsafe { &mut *conf.cast::<MainConf>() };
        // SAFETY: `cf` is valid.
        let result = unsafe { build(cf, std::mem::take(&mut main.settings)) };
        let result = result.map(|ready| main.ready = Some(ready));
        // SAFETY: `cf` and `main` are valid; the configuration lives as long as its zones' objects.
        let result = result.and_then(|()| unsafe { shm::add_zones(cf, main) });
        // SAFETY: `cf` is valid.
        unsafe { outcome(cf, result) }
    })
}

/// # Safety
/// `cf` is a valid configuration.
unsafe fn build(cf: *mut ngx_conf_t, mut settings: Settings) -> Result<Ready, ConfError> {
    settings.finish()?;
    let hasher = shared_hasher(&settings);
    let catalog = Catalog::build(&settings, hasher.as_ref())?;
    // SAFETY: `cf` is valid.
    let compiled = catalog
        .rules
        .iter()
        .map(|bound| unsafe { compiled(cf, bound) });
    let compiled = compiled.collect::<Result<Vec<_>, _>>()?;
    let (sources, status) = {
        let compile = |template: &str| {
            let fault = || ConfError::new("gabion_bind", template, "it cannot be compiled");
            // SAFETY: `cf` is valid.
            unsafe { text::compile(cf, template) }.ok_or_else(fault)
        };
        let all = catalog.sources.iter();
        let mut status = all.clone().filter(|source| source.is_status);
        let status = status
            .next()
            .map(|source| compile(&source.template))
            .transpose()?;
        (
            all.map(|source| compile(&source.template))
                .collect::<Result<_, _>>()?,
            status,
        )
    };
    for notice in settings.notices.iter().chain(&catalog.notices) {
        // SAFETY: the log of a valid configuration.
        unsafe { log::line((*cf).log, log::NOTICE, notice) };
    }
    Ok(Ready {
        hasher: hasher.map_or_else(OnceLock::new, OnceLock::from),
        identity: OnceLock::new(),
        zones: catalog.zones.iter().map(|_| OnceLock::new()).collect(),
        settings: Arc::new(settings),
        catalog,
        compiled,
        sources,
        status,
    })
}

/// # Safety
/// `cf` is a valid configuration.
unsafe fn compiled(cf: *mut ngx_conf_t, bound: &Bound) -> Result<Compiled, ConfError> {
    let fault = |text: &str| {
        let why = format!("rule {}: its text cannot be compiled", bound.rule.name);
        ConfError::new("gabion_limit_rule", text, why)
    };
    let compile = |text: &str| {
        // SAFETY: `cf` is valid.
        unsafe { text::compile(cf, text) }.ok_or_else(|| fault(text))
    };
    let bindings = bound.bindings.iter().map(|b| compile(&b.template));
    let denial = bound.rule.denial.as_ref();
    let text = denial.and_then(|denial| denial.body.as_deref());
    let body = text.map(|text| {
        let kind = denial.and_then(|denial| denial.content_type.as_deref());
        let kind = kind.unwrap_or(BODY_TYPE_DEFAULT);
        // SAFETY: `cf` is valid, its pool too.
        let made = unsafe {
            let kind = pool::copied((*cf).pool, kind.as_bytes());
            text::plain(cf, text).zip(kind)
        };
        let (value, content_type) = made.ok_or_else(|| fault(text))?;
        Ok(Body {
            value,
            content_type,
        })
    });
    Ok(Compiled {
        bindings: bindings.collect::<Result<_, _>>()?,
        except_if: bound.except_if.as_deref().map(compile).transpose()?,
        only_if: bound.only_if.as_deref().map(compile).transpose()?,
        body: body.transpose()?,
    })
}

/// A level takes what it does not give from the one above, and its names become rules.
pub(super) unsafe extern "C" fn merge_loc(
    cf: *mut ngx_conf_t,
    above: *mut c_void,
    conf: *mut c_void,
) -> *mut c_char {
    caught(REFUSED, || {
        // SAFETY: nginx hands two different values that `create_loc` made.
        let (above, loc) = unsafe { (&*above.cast::<LocConf>(), &mut *conf.cast::<LocConf>()) };
        loc.level.inherit(&above.level);
        loc.body = loc.body.or(above.body);
        // SAFETY: `cf` is within `http`.
        let main = unsafe { shm::main_conf_of(cf) };
        let result = main.map_or(Ok(()), |main| resolve(loc, main));
        // SAFETY: `cf` is valid.
        unsafe { outcome(cf, result) }
    })
}

fn resolve(loc: &mut LocConf, main: &MainConf) -> Result<(), ConfError> {
    let Some(ready) = &main.ready else {
        return Ok(());
    };
    let (catalog, mut rules) = (&ready.catalog, Vec::new());
    if let Some(Names::Rules(names)) = &loc.level.names {
        for name in names {
            let at = catalog.find(name)?;
            rules.push(u16::try_from(at).unwrap_or(u16::MAX));
        }
    }
    let mut domain = None;
    if let Some(Domain::Of(name)) = &loc.level.domain {
        catalog.check_domain(name)?;
        domain = Some(name.as_str().into());
    }
    if loc.level.is_on() {
        loc.is_plain = domain.is_none() && rules.iter().all(|at| catalog.is_plain(*at));
        loc.asks = domain.is_some() || !rules.is_empty();
        loc.rules = rules.into();
        loc.domain = domain;
    }
    Ok(())
}

/// Before the configuration is read: is this the nginx we were built for, and our variables.
pub(super) unsafe extern "C" fn before(cf: *mut ngx_conf_t) -> ngx_int_t {
    caught(code::ERROR, || {
        // SAFETY: `cf` is valid.
        unsafe {
            log::use_log((*cf).log);
            if let Some(why) = super::guard::other_layout() {
                log::refuse(cf, &why);
                return code::ERROR;
            }
            vars::add(cf)
        }
    })
}
