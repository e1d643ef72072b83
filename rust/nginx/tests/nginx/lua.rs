//! Lua beside the module: its access phase comes after limits, and sees what they said.
//!
//! `GABION_LUA` names the folder that Debian's packages are unpacked in; `tools/nginx-module test`
//! sets it, or says why it cannot.

use std::path::PathBuf;

use crate::server::{Around, Folder, Nginx};

/// The folder, or `None` with a loud reason.
fn lua() -> Option<PathBuf> {
    let folder = std::env::var_os("GABION_LUA").map(PathBuf::from)?;
    let there = folder.join("usr/lib/nginx/modules/ngx_http_lua_module.so");
    assert!(there.is_file(), "{} is missing", there.display());
    Some(folder)
}

#[test]
fn lua_and_limits_work_side_by_side() {
    let Some(lua) = lua() else {
        eprintln!("NOT TESTED: Lua beside the module; GABION_LUA is not set");
        return;
    };
    let modules = lua.join("usr/lib/nginx/modules");
    let load = |name: &str| format!("load_module {}/{name}_module.so; ", modules.display());
    let more = load("ndk_http") + &load("ngx_http_lua");
    let around = Around {
        more: &more,
        ..Around::default()
    };
    let http = format!(
        "lua_package_path '{}/usr/share/lua/5.1/?.lua;;'; access_log DIR/access.log told;
         init_worker_by_lua_block {{ started = ngx.now() }}
         gabion_limit_zone zone=z:1m; gabion_limit_rule a k:$arg_k rate=2r/w;
         gabion_limit_rule tenant tenant:$tenant rate=1r/w;
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location /access {{ gabion_limit a;
                 access_by_lua_block {{
                     ngx.header['X-Lua'] = ngx.var.gabion_status .. ' ' .. ngx.var.gabion_remaining
                     if ngx.var.arg_deny then ngx.exit(403) end }}
                 try_files /x.txt =404; }}
             location /tenant {{ set_by_lua_block $tenant {{ return ngx.var.arg_t or '' }}
                 gabion_limit tenant; try_files /x.txt =404; }}
             location /content {{ gabion_limit a;
                 content_by_lua_block {{ ngx.say(ngx.var.gabion_rule) }} }}
             location /captures {{ gabion_limit a;
                 content_by_lua_block {{
                     for _ = 1, 3 do ngx.location.capture('/inner') end ngx.say('done') }} }}
             location /inner {{ gabion_limit a; try_files /x.txt =404; }}
             location /exec {{ gabion_limit a;
                 rewrite_by_lua_block {{ ngx.exec('/inner', ngx.req.get_uri_args()) }} }} }}",
        lua.display()
    );
    let nginx = Nginx::start_with(Folder::new(), "2", &around, &http);
    let said = |path: &str| {
        let response = nginx.get(path);
        (response.status, response.header("X-Lua").map(str::to_owned))
    };
    assert_eq!(said("/access?k=1"), (200, Some("PASSED 1".into())));
    // Lua refuses what the limit has counted: as with auth, the hit stands.
    assert_eq!(said("/access?k=1&deny=1"), (403, Some("PASSED 0".into())));
    assert_eq!(
        said("/access?k=1"),
        (429, None),
        "Lua is not asked any more"
    );
    // A variable that Lua sets in the rewrite phase is a key as any other.
    let tenants = ["a", "a", "b", ""].map(|t| nginx.get(&format!("/tenant?t={t}")).status);
    assert_eq!(tenants, [200, 429, 200, 200]);
    assert_eq!(nginx.get("/content?k=2").body, "a\n");
    assert_eq!(nginx.get("/captures?k=3").body, "done\n");
    assert_eq!(
        nginx.get("/captures?k=3").status,
        200,
        "captures are not charged"
    );
    assert_eq!(nginx.get("/captures?k=3").status, 429);
    assert_eq!(nginx.statuses("/exec?k=4", 3), [200, 200, 429]);
    assert_eq!(nginx.count("tenant", "empty_key"), 1);
}
