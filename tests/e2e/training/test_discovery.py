"""The init container's script that finds the libraries in an image, whose root this machine's is here.

`cargo test --test e2e-training` runs each test in separate network and mount namespaces, as root, and passes the text of
the script in FIND_LIBRARIES.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
HOOK = HERE.parents[2] / "webhook/inject/src/launcher_hook/swansong_launcher_hook.py"
HOOK_TEXT = HOOK.read_text()
PTH = HOOK.with_name("swansong-launcher-hook.pth")
PTH_TEXT = PTH.read_text()
# The folders of a distribution. What else this machine has may hold libraries, which a search would find.
DISTRIBUTION = "bin boot dev etc lib lib32 lib64 libx32 opt proc run sbin srv sys tmp usr var".split()
SCRIPT = os.environ["FIND_LIBRARIES"]
OUT = pathlib.Path("/opt/swansong")
LIBRARY = "taskd/python/cython_api/libs/libtaskd.so"
LOG = pathlib.Path("/dev/termination-log")
VERSION = "python%d.%d" % sys.version_info[:2]
# Prints when it is loaded.
SOURCE = '#include <stdio.h>\n__attribute__((constructor)) static void loaded(void) { puts("loaded"); fflush(stdout); }\n'
LOAD = """
import ctypes, os, sys
first = ctypes.CDLL(sys.argv[1])
inode = os.stat(sys.argv[1]).st_ino
maps = [line.split() for line in open("/proc/self/maps")]
print("inodes", sorted({int(fields[4]) for fields in maps if fields[-1].endswith("libtaskd.so")}) == [inode])
"""


class Discovery(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        devices = self.folder / "dev"
        devices.mkdir()
        self.mount("--bind", "/dev", devices)
        others = [place for place in pathlib.Path("/").iterdir() if place.is_dir() and not place.is_symlink()]
        others = [place for place in others if place.name not in DISTRIBUTION]
        for place in ["/dev", "/opt", "/srv", *others]:
            self.mount("-t", "tmpfs", "tmpfs", place)
        pathlib.Path("/dev/null").touch()
        self.mount("--bind", devices / "null", "/dev/null")
        OUT.mkdir()
        LOG.touch()

    def mount(self, *arguments):
        subprocess.check_call(["mount", *map(str, arguments)])
        self.addCleanup(subprocess.check_call, ["umount", str(arguments[-1])])

    def install(self, path):
        """A library at a path; returns it."""
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        source = self.folder / "library.c"
        source.write_text(SOURCE)
        subprocess.check_call(["cc", "-shared", "-fPIC", "-o", str(path), str(source)])
        return path

    def find(self, shell="/bin/sh", script=SCRIPT, user=None, **environment):
        """Runs the script; returns what the termination message says."""
        subprocess.check_call([shell, "-c", script], env={**os.environ, **environment}, user=user)
        lines = LOG.read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def test_library_below_another_prefix_is_linked(self):
        library = self.install("/opt/conda/envs/train/lib/python3.9/site-packages/" + LIBRARY)
        self.assertEqual(self.find()["libtaskd"], str(library))
        self.assertEqual((OUT / "libtaskd.so").resolve(), library)

    def test_linked_library_is_loaded_once(self):
        library = self.install("/opt/conda/lib/python3.11/site-packages/" + LIBRARY)
        self.find()
        program = [sys.executable, "-c", LOAD, str(library)]
        output = subprocess.check_output(program, env={**os.environ, "LD_PRELOAD": str(OUT / "libtaskd.so")})
        self.assertEqual(output, b"loaded\ninodes True\n")
        self.assertFalse(library.is_symlink())

    def test_python_is_asked_where_there_is_one(self):
        library = self.install("/srv/unusual/" + LIBRARY)
        (library.parents[3] / "__init__.py").touch()
        self.install("/opt/conda/lib/python3.9/site-packages/" + LIBRARY)
        found = self.find(PYTHONPATH="/srv/unusual")
        self.assertEqual(found["libtaskd"], str(library))
        self.assertEqual((OUT / "python").read_text(), shutil.which("python3") + "\n")

    def programs(self, *names):
        """A PATH with a few programs of this machine."""
        folder = self.folder / "bin"
        folder.mkdir()
        for name in names:
            (folder / name).symlink_to(shutil.which(name))
        return folder

    def place(self):
        """A folder of the image's own file system at an unusual path."""
        place = tempfile.mkdtemp(dir="/var/lib")
        self.addCleanup(shutil.rmtree, place)
        return pathlib.Path(place)

    def test_image_without_a_known_place_is_searched(self):
        """Its own file system only, and without Python."""
        library = self.install(self.place() / "deep/py" / LIBRARY)
        path = str(self.programs("find", "ln", "mkdir"))
        self.assertEqual(self.find(PATH=path)["libtaskd"], str(library))

    def test_library_a_few_folders_deep_is_found_without_a_search(self):
        library = self.install("/srv/envs/my env/lib/python3.12/site-packages/" + LIBRARY)
        self.assertEqual(self.find(PATH=str(self.programs("ln", "mkdir")))["libtaskd"], str(library))

    def test_python_built_at_an_unusual_path_is_found_with_its_interpreter(self):
        versions = self.place() / "my pyenv/versions/3.10.4"
        library = self.install(versions / "lib/python3.10/site-packages" / LIBRARY)
        (versions / "bin").mkdir()
        (versions / "bin/python3.10").symlink_to("/usr/bin/python3")
        path = str(self.programs("find", "ln", "mkdir"))
        self.assertEqual(self.find(PATH=path)["libtaskd"], str(library))
        self.assertEqual((OUT / "libtaskd.so").resolve(), library)
        self.assertEqual((OUT / "python").read_text(), "%s/bin/python3.10\n" % versions)

    def test_folder_without_a_version_of_python_names_no_folder_as_interpreter(self):
        self.install(self.place() / "packages" / LIBRARY)
        self.find(PATH=str(self.programs("find", "ln", "mkdir")))
        self.assertTrue(os.path.isfile((OUT / "python").read_text().rstrip("\n")))

    def test_second_python_is_asked_where_the_first_has_no_taskd(self):
        library = self.install("/srv/second/" + LIBRARY)
        (library.parents[3] / "__init__.py").touch()
        programs = self.programs("find", "ln", "mkdir", "python3")
        script = "#!/bin/sh\nPYTHONPATH=/srv/second exec /usr/bin/python3 \"$@\"\n"
        (programs / "python").write_text(script)
        (programs / "python").chmod(0o755)
        self.assertEqual(self.find(PATH=str(programs))["libtaskd"], str(library))
        self.assertEqual((OUT / "python").read_text(), "%s/python\n" % programs)

    def test_output_of_a_sitecustomize_is_left_out(self):
        library = self.install("/srv/unusual/" + LIBRARY)
        (library.parents[3] / "__init__.py").touch()
        pathlib.Path("/srv/unusual/sitecustomize.py").write_text("print('welcome')\n")
        self.assertEqual(self.find(PYTHONPATH="/srv/unusual")["libtaskd"], str(library))
        self.assertTrue((OUT / "python").exists())

    def test_folder_of_packages_that_is_a_link_is_followed(self):
        library = self.install("/srv/packages/" + LIBRARY)
        site = pathlib.Path("/opt/conda/lib/python3.9/site-packages")
        site.parent.mkdir(parents=True)
        site.symlink_to("/srv/packages")
        self.assertEqual(self.find()["libtaskd"], str(site / LIBRARY))
        self.assertEqual((OUT / "libtaskd.so").resolve(), library)

    def test_image_without_ln_has_no_links_and_says_so(self):
        self.install("/opt/conda/lib/python3.9/site-packages/" + LIBRARY)
        found = self.find(PATH=str(self.programs("find", "mkdir")))
        self.assertEqual(found["libtaskd"], "")
        self.assertIn("can't be linked", found["warning"])

    def test_search_that_takes_too_long_is_stopped(self):
        programs = self.programs("ln", "mkdir", "timeout", "true", "sleep")
        (programs / "find").write_text("#!/bin/sh\nexec sleep 1000\n")
        (programs / "find").chmod(0o755)
        self.assertIn("timeout 20", SCRIPT)
        found = self.find(script=SCRIPT.replace("timeout 20", "timeout 1"), PATH=str(programs))
        self.assertEqual(found["libtaskd"], "")
        self.assertIn("was stopped", found["warning"])

    def test_user_without_rights_and_a_home_finds_them_too(self):
        library = self.install("/opt/conda/lib/python3.9/site-packages/" + LIBRARY)
        OUT.chmod(0o777)
        LOG.chmod(0o666)
        self.assertEqual(self.find(user=65534, HOME="/nonexistent")["libtaskd"], str(library))
        self.assertEqual((OUT / "libtaskd.so").resolve(), library)

    def test_interpreter_beside_the_library_is_found(self):
        library = self.install("/opt/conda/lib/python3.9/site-packages/" + LIBRARY)
        python = library.parents[7] / "bin/python3.9"
        python.parent.mkdir()
        python.symlink_to("/usr/bin/python3")
        self.find()
        self.assertEqual((OUT / "python").read_text(), "/opt/conda/bin/python3.9\n")

    def test_cann_is_found_in_its_places(self):
        toolkit = self.install("/opt/Ascend/cann-8/lib64/libmspti.so")
        self.assertEqual(self.find()["libmspti"], str(toolkit))
        own = self.install("/srv/toolkit/lib64/libmspti.so")
        self.assertEqual(self.find(ASCEND_TOOLKIT_HOME="/srv/toolkit")["libmspti"], str(own))
        self.assertEqual((OUT / "libmspti.so").resolve(), own)

    def test_nothing_found_is_said_and_is_no_failure(self):
        self.assertEqual(self.find(), {"libtaskd": "", "libmspti": ""})
        self.assertEqual([path.name for path in OUT.iterdir()], ["lib"])

    def test_link_in_the_package_is_reported(self):
        library = self.install("/srv/real/libtaskd.so")
        link = pathlib.Path("/opt/conda/lib/python3.9/site-packages/" + LIBRARY)
        link.parent.mkdir(parents=True)
        link.symlink_to(library)
        self.assertIn("TaskD refuses", self.find()["warning"])

    def test_unwritable_folder_is_no_failure(self):
        self.install("/opt/conda/lib/python3.9/site-packages/" + LIBRARY)
        self.mount("-t", "tmpfs", "-o", "ro", "tmpfs", OUT)
        self.assertEqual(self.find()["libtaskd"], "")

    def test_second_run_changes_nothing(self):
        self.install("/opt/conda/lib/python3.9/site-packages/" + LIBRARY)
        self.find()
        first = sorted(OUT.rglob("*"))
        self.find()
        self.assertEqual(sorted(OUT.rglob("*")), first)

    def test_it_runs_in_each_shell(self):
        library = self.install("/opt/conda/lib/python3.9/site-packages/" + LIBRARY)
        for shell in ("dash", "bash", "busybox"):
            path = shutil.which(shell)
            with self.subTest(shell):
                self.assertIsNotNone(path, f"{shell} is missing; `make prerequisites` installs it")
                if shell == "busybox":
                    (self.folder / "sh").symlink_to(path)
                    path = str(self.folder / "sh")
                self.assertEqual(self.find(path)["libtaskd"], str(library))

    def test_hook_is_loaded_by_each_interpreter_and_the_users_packages_stay(self):
        home = self.folder / "home"
        packages = home / ".local/lib" / VERSION / "site-packages"
        packages.mkdir(parents=True)
        (packages / "mine.py").write_text("")
        self.find(HOME=str(home))
        hook = pathlib.Path("/opt/swansong-hook")
        hook.mkdir()
        (hook / HOOK.name).write_text(HOOK_TEXT)
        line = PTH_TEXT.replace("LIMIT", "60").replace("PATCH", "False")
        (hook / PTH.name).write_text(line)
        code = "import mine, sys; print('SwansongTrigger' in str(sys.meta_path))"
        environment = {**os.environ, "HOME": str(home), "PYTHONUSERBASE": str(OUT)}
        for options in ([], ["-B"], ["-u"], ["-O"]):
            output = subprocess.check_output([sys.executable, *options, "-c", code], env=environment)
            self.assertEqual(output, b"True\n", options)


if __name__ == "__main__":
    unittest.main()
