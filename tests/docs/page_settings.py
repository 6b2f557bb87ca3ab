"""What the commands of each page need to run on two machines without accounts.

A page is run from its beginning to its end in one home. The keys below are beginnings of commands, or words
in them, as they stand on the page; a test looks that they still do.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["GO_ON", "OTHERS", "SETTINGS", "Setting"]

_HOME: Final = """
hybrisfs volume create home --make --cloud a=file://$HOME/mnt/a --cloud b=file://$HOME/mnt/b \\
    --cloud c=file://$HOME/mnt/c --cloud d=file://$HOME/mnt/d
hybrisfs mount home ~/HybrisFS
cd ~/HybrisFS && mkdir -p Documents/bills Films Holiday Music Photos Scans Videos
touch Documents/gone Videos/long holiday.mp4
echo one >notes.txt
printf '1\n2\n3\n4\n5\n' | tee text.txt text-2.txt >text-3.txt
hybrisfs sync --wait
echo two >notes.txt && rm Documents/gone
cd && hybrisfs sync --wait
"""
_THERE: Final = """
hybrisfs device invite home >~/invited &
until grep -q hfs1- ~/invited; do sleep 0.05; done
there "hybrisfs device join $(grep -o 'hfs1-.*' ~/invited) --name den"
wait $!
there 'hybrisfs mount home ~/HybrisFS'
"""
_NOW: Final = "--at $(date --date '1 minute' +%FT%H:%M)"
_LOST: Final = "rm -r ~/mnt/a && mkdir ~/mnt/a"
_MANY: Final = "mkdir {0} && for number in $(seq 200); do echo $number >{0}/$number; done"
_DELETED: Final = """
there 'until hybrisfs sync --wait; do sleep 0.1; done'
there 'rm -r ~/HybrisFS/{}; hybrisfs sync --wait'
until hybrisfs deletions list --json | grep -q '"id"'; do sleep 0.1; done
"""
_CONFLICT: Final = """
until hybrisfs conflicts list --volume home --json | grep -q '"of"'; do
    there 'sed -i "5s/.*/five $RANDOM/" ~/HybrisFS/{0}' &
    sed -i "1s/.*/one $RANDOM/" ~/HybrisFS/{0}
    wait
    there 'hybrisfs sync --wait' && hybrisfs sync --wait
done
"""
_FREE: Final = "127.0.0.1:0"


def _s3(path: str) -> str:
    """The URL of what is at the S3 server."""
    return f"'s3://{path}?region=us-east-1&endpoint=http://127.0.0.1:'$S3"


def _login(url: str, secrets: str = "$S3_SECRETS") -> str:
    return f'echo "{secrets}" | hybrisfs cloud login {url} --secrets -'


def _tag(key: str) -> str:
    return f"$(hybrisfs kv list home {key} --json | jq -r '.keys[0].tag')"


def _login_everywhere(url: str) -> str:
    return f"{_login(url)}\nthere {shlex.quote(_login(url))}"


@dataclass(frozen=True)
class Setting:
    """How a page is run."""

    first: str = _HOME
    """What there is before the first command."""
    before: Mapping[str, str] = field(default_factory=dict)
    """What has happened before a command that begins so."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """What stands for what only other homes have."""
    there: tuple[str, ...] = ()
    """Beginnings of commands that the page gives to the other machine."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Commands that cannot run here, and why, or which test runs them."""

    def translated(self, command: str) -> tuple[str, set[str]]:
        """What is run for *command*, and for which of its words something else stands in that."""
        used = set[str]()
        for word, other in self.instead.items():
            if word in command:
                used.add(word)
                command = command.replace(word, other)
        return command, used

    servers: tuple[str, ...] = ()
    """The servers that run: of each there are its port, the URL of a place, and what opens it ($S3, $S3_URL
    and $S3_SECRETS, say)."""


OTHERS: Final = (
    *("aws ", "az ", "export ", "gcloud ", "loginctl ", "mount.davfs ", "packaging/"),
    *("rclone ", "restic ", "sftp ", "ssh-keygen ", "sshfs "),
)
"""Other programs: they need accounts, servers or root."""

GO_ON: Final = {
    r"hybrisfs device invite": r"hfs1-\S+",
    r"hybrisfs serve (webdav|sftp) \w": r"(https?|sftp)://\S+",
    r"hybrisfs serve s3 (?!.*--show-keys)": r"http://\S+",
    r"hybrisfs status --watch": r".*",
    r"hybrisfs relay serve": r"Relay at \S+",
    r"hybrisfs ui": r"http://\S+",
    r"hybrisfs events --follow": r".*",
    r"hybrisfs metrics --serve": r"http://\S+",
}
"""Commands that end by Ctrl-C, and what they print before."""

_HOW_TO: Final = Setting(
    first=_HOME + _MANY.format("~/HybrisFS/Letters") + "\n" + _MANY.format("~/HybrisFS/Songs"),
    servers=("s3",),
    before={
        "hybrisfs cloud replace old-bucket": f"""
            hybrisfs cloud add file://$HOME/mnt/old --make --name old-bucket
            {_login_everywhere(_s3("new-bucket/folder"))}
            """,
        "hybrisfs cloud adopt CLOUD": _LOST,
        "hybrisfs cloud add 's3": _login_everywhere(_s3("bucket/photos")),
        "hybrisfs device remove NAME": "there 'hybrisfs sync --wait'",
        "hybrisfs deletions list": "hybrisfs device keep den" + _DELETED.format("Letters"),
        "hybrisfs deletions undo ID": _DELETED.format("Songs"),
        "hybrisfs versions restore FOLDER": "hybrisfs device keep den",
        "hybrisfs pause --for 2h": "hybrisfs mount home ~/HybrisFS",
        "hybrisfs sync --wait --timeout 600": "hybrisfs resume",
        "hybrisfs scrub": "there 'hybrisfs sync --wait'",
        "hybrisfs cloud add --code -": """
            hybrisfs relay code home >~/shown
            grep -o 'hfr1-.*' ~/shown >~/code
            """,
        "hybrisfs volume delete NAME": """
            hybrisfs volume create spare --cloud file://$HOME/mnt/spare
            """,
    },
    instead={
        "hybrisfs cloud login 's3://bucket/folder?region=eu-west-1'": _login(_s3("bucket/folder")),
        "hybrisfs device join hfs1-...": "hybrisfs device join $READY --name den",
        "old-bucket s3://new-bucket/folder": f"old-bucket {_s3('new-bucket/folder')}",
        "cloud adopt CLOUD": "cloud adopt a",
        "cloud add 's3://bucket/photos?region=eu-west-1'": f"cloud add --name s3 {_s3('bucket/photos')}",
        "device remove NAME": "device remove den",
        " ID": " $(hybrisfs deletions list --json | jq -r '.deletions[0].id')",
        "versions restore FOLDER --at 5h": f"versions restore ~/HybrisFS/Documents {_NOW}",
        "volume set NAME": "volume set home",
        "volume set photos": "volume set home",
        "serve s3 home": f"serve s3 home --listen {_FREE}",
        "device role NAME": "device role den",
        "relay add home nas.example": "relay add home 127.0.0.1:$PORT",
        "relay serve": "relay serve --listen 127.0.0.1:$PORT",
        "--code -": "--code - <$HERE/code",
        "'relay://nas.example:8017/home?pin=HASH'": "$(grep -o 'relay://.*' ~/shown)",
        "--folder PATH": "--folder ~/HybrisFS/Holiday",
        "systemctl poweroff": "true",
        "hybrisfs quickstart": "HYBRISFS_HOME=~/try hybrisfs quickstart",
        "hybrisfs umount home && hybrisfs daemon --stop": (
            "export HYBRISFS_HOME=~/try; hybrisfs umount home && hybrisfs daemon --stop"
        ),
        "/tmp/try": "~/try",
        "volume leave NAME": "volume leave home",
        "volume delete NAME": "volume delete spare --confirm spare",
        "~/Documents/from-hybrisfs": "~/from-hybrisfs",
    },
    there=(
        "hybrisfs device join",
        "hybrisfs mount home",
        "hybrisfs daemon --stop",
        "hybrisfs cloud login --code",
        "hybrisfs volume leave",
    ),
    elsewhere={
        "hybrisfs service": "needs a session of systemd: tests/system/test_fresh_debian.py",
        "hybrisfs mount NAME DIR --allow-other": "needs /etc/fuse.conf: tests/system/test_other_users.py",
    },
)

_TROUBLESHOOTING: Final = Setting(
    first=_HOME + _THERE,
    before={
        "hybrisfs cloud adopt CLOUD": _LOST,
        # Two clouds must not lack something at once: the one that was adopted is refilled first.
        "hybrisfs cloud remove CLOUD": """
            hybrisfs repair home
            hybrisfs cloud add file://$HOME/mnt/spare --make
            """,
        "hybrisfs umount NAME": "hybrisfs mount home ~/HybrisFS",
        "hybrisfs scrub NAME": "hybrisfs repair home",
        "hybrisfs umount DIR": "hybrisfs mount home ~/HybrisFS",
        "hybrisfs device role": "hybrisfs mount home ~/HybrisFS",
    },
    instead={
        "cloud adopt CLOUD": "cloud adopt a",
        "cloud remove CLOUD": "cloud remove d",
        " NAME": " home",
        "umount DIR": "umount ~/HybrisFS",
        "device role home": "device role den",
        "--folder PATH": "--folder ~/HybrisFS/Holiday",
        "cloud login URL": 'cloud login "$S3_URL" --secrets - <<<"$S3_SECRETS"',
        "cloud test URL": "cloud test file://$HOME/mnt/b",
    },
    servers=("s3",),
    elsewhere={
        "hybrisfs volume rebuild": "needs a damaged database: tests/volume/test_rebuild.py",
        "hybrisfs kv rebuild": "needs a damaged database: tests/kv/test_rebuild.py",
        "hybrisfs volume leave": "would end the page: tests/system/test_leaving.py",
    },
)

_README: Final = Setting(
    first="""
    mkdir ~/Documents && echo text >~/Documents/letter
    hybrisfs quickstart
    """,
    before={
        "hybrisfs cache drop": "hybrisfs sync --wait",
        "hybrisfs versions list": """
            echo one >~/HybrisFS/notes.txt && hybrisfs sync --wait
            echo two >~/HybrisFS/notes.txt
            """,
        "hybrisfs device invite": "cd && hybrisfs volume delete second --confirm second",
    },
    instead={
        "hybrisfs scrub": "! hybrisfs scrub",
        "hybrisfs setup": """
            hybrisfs setup --name second --folder ~/Second --no-kit --make \
                --cloud file://$HOME/a --cloud file://$HOME/b --cloud file://$HOME/c
            """,
        "hybrisfs device join CODE": "hybrisfs device join $READY",
        "cloud login URL": 'cloud login "$S3_URL" --secrets - <<<"$S3_SECRETS"',
    },
    there=("hybrisfs device join",),
    servers=("s3",),
)

_COMMANDS: Final = Setting(
    first=_HOME
    + """
    mkdir ~/Projects ~/Pictures
    for file in FILE OWNER A B dark.json; do echo $file >~/$file; done
    echo a passphrase of many words that nobody guesses >~/passphrase
    hybrisfs label add urgent ~/HybrisFS/notes.txt
    """,
    before={
        "hybrisfs volume create photos": "mkdir -p ~/mnt/{a,b,c,d,e,disk,box}",
        "hybrisfs cloud add file": """
            hybrisfs mount photos ~/Photos
            for name in hy-2 old-disk stolen-disk nas; do
                hybrisfs cloud add file://$HOME/mnt/$name --make --name $name --volume photos
            done
            """,
        "hybrisfs cloud adopt disk": "rm -r ~/mnt/disk/photos && mkdir ~/mnt/disk/photos",
        "hybrisfs volume leave pictures": "hybrisfs volume create left --cloud file://$HOME/left",
        "hybrisfs volume leave home": "hybrisfs device keep den",
        "hybrisfs conflicts merge PATH": _THERE.replace("den", "desk") + _CONFLICT.format("text.txt"),
        "hybrisfs conflicts keep PATH": _CONFLICT.format("text-2.txt"),
        "hybrisfs conflicts keep-all PATH": _CONFLICT.format("text-3.txt"),
        "hybrisfs recover ": "there 'hybrisfs volume leave home'",
        "hybrisfs kv tput home --put bank": """
            hybrisfs kv create home bank
            for key in anna bert; do hybrisfs kv put home bank/$key A; done
            """,
        "hybrisfs kv put home locks/backup": "hybrisfs kv create home locks --metadata device || true",
        "hybrisfs recovery remove": (
            "until hybrisfs device list home --json | grep -q old-laptop; do sleep 0.1; done"
        ),
        "hybrisfs kv put home notes/now FILE": "hybrisfs kv put home notes/now A",
        "hybrisfs kv clean home --dry-run": "hybrisfs serve user add home tv",
        "hybrisfs kv create home bank": """
            for key in anna bert; do hybrisfs kv delete home bank/$key; done
            hybrisfs kv drop home bank
            """,
        "hybrisfs kv create home locks --metadata clouds": """
            hybrisfs kv delete home locks/backup
            hybrisfs kv drop home locks
            """,
    },
    instead={
        "volume leave pictures": "volume leave left --last",
        "--at 2h": _NOW,
        "--at 3d": _NOW,
        "user.hybrisfs.state FILE": "user.hybrisfs.state ~/HybrisFS/notes.txt",
        "user.hybrisfs.where FILE": "user.hybrisfs.where ~/HybrisFS/notes.txt",
        "user.hybrisfs.labels FILE": "user.hybrisfs.labels ~/HybrisFS/notes.txt",
        "--cloud s3://bucket/folder --cloud file:///mnt/disk/folder": (
            "--cloud file://$HERE/mnt/a --passphrase-file $HERE/passphrase --name old-laptop"
        ),
        "file:///mnt/": "file://$HOME/mnt/",
        "sftp://me@box.example/folder": "file://$HOME/mnt/box/folder",
        "hybrisfs volume delete pictures": "hybrisfs volume delete pictures --confirm pictures",
        **{
            f"hybrisfs cloud {what} ": f"hybrisfs cloud {what} --volume photos "
            for what in ("add", "rename", "drain", "remove", "replace", "adopt")
        },
        "hybrisfs device join CODE": "hybrisfs device join $READY --name den",
        "device remove LAPTOP": "device remove den",
        "conflicts merge PATH": "conflicts merge text.txt",
        "conflicts keep PATH": "conflicts keep text-2.txt",
        "conflicts keep-all PATH": "conflicts keep-all text-3.txt",
        "--page kit.html": "--page kit.html --passphrase-file ~/passphrase",
        "remove 1f0c9a2e": "remove $(hybrisfs recovery show --json | jq -r '.kits[0].kit')",
        "serve webdav home": f"serve webdav home --listen {_FREE}",
        "serve sftp home": f"serve sftp home --listen {_FREE}",
        "serve s3 home": f"serve s3 home --listen {_FREE}",
        f" --listen {_FREE} --listen 0.0.0.0:8015": f" --listen {_FREE}",
        f" --listen {_FREE} --listen 0.0.0.0:8016": f" --listen {_FREE}",
        "relay serve": f"relay serve --listen {_FREE}",
        "metrics --serve 9797": "metrics --serve $PORT",
        "volume set NAME": "volume set home",
        "cloud login URL": 'cloud login "$S3_URL" --secrets - <<<"$S3_SECRETS"',
        "notes/now FILE --if-match 3-17": f"notes/now FILE --if-match {_tag('notes/now')}",
        "bank/anna 3-17": f"bank/anna {_tag('bank/anna')}",
        "bank/bert 8-41": f"bank/bert {_tag('bank/bert')}",
        "--tag 4-77": f"--tag {_tag('settings/theme')}",
        "-programs LIST": "-programs tumblerd,baloo",
        "status FILE": "status ~/HybrisFS/notes.txt",
        "cloud price nas": "cloud price --volume home a",
        "cloud price s3": "cloud price --volume home b",
        "merge=off FOLDER": "merge=off ~/HybrisFS/Documents",
        "-days DAYS": "-days 30",
        "-hours HOURS": "-hours 48",
        "session home TEXT": "session home $(hybrisfs kv session home)",
        "ui PATH": "ui ~/HybrisFS/Documents",
        "etcd://db1,db2,db3": "$ETCD_URL",
        "'etcds://db.example.org?names=sealed'": '"$ETCD_URL?names=sealed"',
    },
    there=("hybrisfs device join", "hybrisfs mount home", "hybrisfs recover ", "hybrisfs volume leave home"),
    servers=("s3", "etcd"),
    elsewhere={
        "hybrisfs kv migrate home locks": "takes two minutes: tests/kv/test_migrate_clouds.py",
        "hybrisfs volume rebuild": "needs a damaged database: tests/volume/test_rebuild.py",
        "hybrisfs kv rebuild": "needs a damaged database: tests/kv/test_rebuild.py",
        "hybrisfs kv create home notes --metadata": "needs a ZooKeeper: tests/kv/test_zookeeper.py",
        "hybrisfs cloud login etcd": "needs users of an etcd: tests/kv/test_etcd_client.py",
        "hybrisfs service": "needs a session of systemd: tests/system/test_fresh_debian.py",
        "hybrisfs tray": "needs a desktop: tests/tray/test_item.py",
    },
)

_FAQ: Final = Setting(
    first=_HOME + "mkdir ~/Documents",
    before={
        "hybrisfs cloud login URL": "hybrisfs resume",
        "hybrisfs share FILE": f"""
            {_login(_s3("bucket/folder"))}
            hybrisfs cloud add --name s3 {_s3("bucket/folder")}
            """,
        "hybrisfs volume rename OLD": "hybrisfs volume create mistyped --make --cloud file://$HOME/mnt/mistyped",
        "hybrisfs cloud replace OLD": "hybrisfs cloud add file://$HOME/mnt/old --make --name old",
        "hybrisfs cloud drain OLD": "hybrisfs cloud add file://$HOME/mnt/older --make --name older",
    },
    instead={
        "hybrisfs quickstart": ("export HYBRISFS_HOME=~/try; hybrisfs quickstart && hybrisfs umount home"),
        "rename OLD NEW": "rename mistyped correct",
        "delete NAME": "delete correct --confirm correct",
        "cloud add URL": "cloud add file://$HOME/mnt/e --make",
        "replace OLD URL": "replace old file://$HOME/mnt/new --make",
        "drain OLD": "drain older --wait",
        "redundancy NAME": "redundancy home",
        "remove KIT": "remove $(hybrisfs recovery show --json | jq -r '.kits[0].kit')",
        "volume set NAME": "volume set home",
        "status FILE": "status ~/HybrisFS/notes.txt",
        "pending FILE": "pending ~/HybrisFS/notes.txt",
        "list FILE": "list ~/HybrisFS/notes.txt",
        "restore FILE": "restore ~/HybrisFS/notes.txt",
        "--removed FOLDER": "--removed ~/HybrisFS/Documents",
        "pin FOLDER": "pin ~/HybrisFS/Music",
        "cloud login URL": 'cloud login "$S3_URL" --secrets - <<<"$S3_SECRETS"',
        "device join CODE": "device join $READY --name den",
        "leave NAME": "leave home",
        "share FILE": "share ~/HybrisFS/notes.txt",
    },
    there=("hybrisfs device join", "hybrisfs volume leave NAME"),
    servers=("s3",),
    elsewhere={"hybrisfs service": "needs a session of systemd: tests/system/test_fresh_debian.py"},
)

_SERVE: Final = Setting(
    before={"hybrisfs serve sftp home": "hybrisfs serve user add home phone"},
    instead={
        "0.0.0.0:8015": _FREE,
        "0.0.0.0:8016": _FREE,
    },
)

_MOVING: Final = Setting(
    first=_HOME + "mkdir -p ~/Dropbox ~/Sync ~/Vault ~/disk && touch ~/Dropbox/letter",
    instead={"/mnt/disk/my-files": "~/disk/my-files"},
)

_UPGRADING: Final = Setting(
    first=_HOME + "hybrisfs recovery make",
    elsewhere={"hybrisfs service": "needs a session of systemd: tests/system/test_fresh_debian.py"},
)

_PROVIDERS: Final = Setting(
    first=_HOME
    + """
    for name in drive onedrive dropbox pcloud mega; do
        mkdir ~/$name && rclone config create $name alias remote=$HOME/$name >/dev/null
    done
    (umask 77; jq -r .private_key <<<"$SFTP_SECRETS" >~/sftp-key)
    """,
    before={"hybrisfs volume create home --cloud URL": "hybrisfs umount home"},
    instead={
        "volume create home --cloud URL --cloud URL --cloud URL": (
            "volume create another --make --cloud file://$HOME/a --cloud file://$HOME/b --cloud file://$HOME/c"
        ),
        "cloud test URL": "cloud test file://$HOME/mnt/a",
        "relay add home nas.example": "relay add home 127.0.0.1:$PORT",
        "relay serve": "relay serve --listen 127.0.0.1:$PORT",
        **{
            f"hybrisfs cloud login {url}": _login('"$S3_URL"')
            for url in (
                "URL",
                "'s3://bucket/folder?region=eu-west-1'",
                "'s3://bucket/folder?region=us-west-004&endpoint=https://s3.us-west-004.backblazeb2.com'",
                "'s3://bucket/folder?region=auto&endpoint=https://ACCOUNT.r2.cloudflarestorage.com'",
                "'s3://bucket/folder?region=eu-central-1&endpoint=https://s3.eu-central-1.wasabisys.com'",
                "'s3://bucket/folder?region=fsn1&endpoint=https://fsn1.your-objectstorage.com'",
            )
        },
        "hybrisfs cloud login 'az://container/folder?account=ACCOUNT'": _login(
            '"$AZURE_URL"', "$AZURE_SECRETS"
        ),
        "hybrisfs cloud login webdavs://me@cloud.example/remote.php/dav/files/me/hybrisfs": _login(
            '"$WEBDAV_URL"', "$WEBDAV_SECRETS"
        ),
        "'sftp://hybrisfs@nas.example/data?key=/home/me/.ssh/hybrisfs'": '"$SFTP_URL&key=$HOME/sftp-key"',
    },
    servers=("s3", "azure", "webdav", "sftp"),
    elsewhere={"hybrisfs cloud login 'gs": "needs a service account: tests/backends/test_gcs.py"},
)

SETTINGS: Final[dict[str, Setting]] = {
    "README.md": _README,
    "docs/commands.md": _COMMANDS,
    "docs/faq.md": _FAQ,
    "docs/how-to.md": _HOW_TO,
    "docs/moving.md": _MOVING,
    "docs/providers.md": _PROVIDERS,
    "docs/serve.md": _SERVE,
    "docs/troubleshooting.md": _TROUBLESHOOTING,
    "docs/upgrading.md": _UPGRADING,
    "others": Setting(before={"hybrisfs relay code": "hybrisfs relay add home 127.0.0.1"}),
}
