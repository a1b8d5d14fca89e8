// SPDX-License-Identifier: BSD-2-Clause
// Starting Python without the working directory among the folders of modules.
#pragma once

#include <string>

namespace heddle::cli {

// PYTHONPATH without its relative entries: an empty one, as `:/some/folder` has, means the working
// directory, where a stranger may have put a json.py. The isolated mode (python3 -I) would also
// leave out what the user has installed in the home directory, matplotlib for instance.
std::string absolute_python_path();

// The beginning of a `python3 -c` program: takes out the working directory, which -c puts first.
// The module sys is part of the interpreter.
inline constexpr char kWithoutWorkingDirectory[] =
    "import sys; sys.path[:] = [each for each in sys.path if each]\n";

}  // namespace heddle::cli
