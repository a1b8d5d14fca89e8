// SPDX-License-Identifier: BSD-2-Clause
// Finding a program and reading its ELF header; see elf(5), ld.so(8) ("secure-execution mode") and
// execve(2) ("Interpreter scripts").
#include "cli/common/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "heddle/detail/assert.h"

namespace cli_common {
namespace {

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
constexpr const char* kMachineName = "x86-64";
#elif defined(__aarch64__)
constexpr unsigned kMachine = EM_AARCH64;
constexpr const char* kMachineName = "aarch64";
#endif
constexpr int kMaxInterpreters = 5;  // as many as the kernel follows

class File {
public:
    explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~File() {
        if (fd_ >= 0) ::close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    bool is_open() const { return fd_ >= 0; }
    // Up to `size` bytes from `offset` on; what is there.
    std::string read(std::uint64_t offset, std::size_t size) const {
        std::string bytes(size, '\0');
        const ssize_t got = ::pread(fd_, bytes.data(), size, static_cast<off_t>(offset));
        bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        return bytes;
    }

private:
    int fd_;
};

bool is_directory(const std::string& path) {
    struct stat status;
    return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw ProgramError(kCannotExecute, path + " " + why);
}

// In secure-execution mode the loader ignores LD_PRELOAD paths.
void check_privileges(const std::string& path) {
    struct stat status;
    struct statvfs filesystem;
    if (::stat(path.c_str(), &status) != 0 || ::statvfs(path.c_str(), &filesystem) != 0 ||
        (filesystem.f_flag & ST_NOSUID) != 0)
        return;
    constexpr const char* kConsequence =
        ": the dynamic loader preloads nothing into such a program. Run a copy of it without that "
        "privilege.";
    if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid())
        refuse(path, std::string("is setuid") + kConsequence);
    if ((status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
        status.st_gid != ::getgid())
        refuse(path, std::string("is setgid") + kConsequence);
    if (::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0)
        refuse(path, std::string("has file capabilities") + kConsequence);
}

// Only this machine's class of ELF files gets this far.
void check_interpreter(const std::string& path, const File& file, const Elf64_Ehdr& header) {
    const std::string name = path.substr(path.rfind('/') + 1);
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        const std::uint64_t at = header.e_phoff + std::uint64_t{i} * header.e_phentsize;
        const std::string bytes = file.read(at, sizeof(Elf64_Phdr));
        if (bytes.size() != sizeof(Elf64_Phdr)) return;
        Elf64_Phdr segment;
        std::memcpy(&segment, bytes.data(), sizeof segment);
        if (segment.p_type != PT_INTERP) continue;
        const std::string loader =
            file.read(segment.p_offset, segment.p_filesz < 4096 ? segment.p_filesz : 4096);
        if (loader.find("ld-musl") != std::string::npos)
            refuse(path,
                   "is linked with musl libc, and libsofthca.so with glibc: it cannot be "
                   "preloaded there. Build the program for glibc.");
        return;
    }
    // The loader itself has no interpreter and may be used as a command.
    if (name.starts_with("ld-linux") || name == "ld.so" || name.starts_with("ld-2.")) return;
    refuse(path,
           "is statically linked: nothing can be preloaded into it, so it would not see the "
           "software HCA. Link it dynamically (libibverbs itself may stay static).");
}

// "#! interpreter [argument]" gives the interpreter.
std::string script_interpreter(std::string_view line) {
    HEDDLE_ASSERT(line.starts_with("#!"), "the caller has looked for a script");
    line.remove_prefix(2);
    line = line.substr(0, line.find('\n'));
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    line.remove_prefix(begin);
    return std::string(line.substr(0, line.find_first_of(" \t\r")));
}

void check_script_interpreter(const std::string& script, const std::string& interpreter) {
    HEDDLE_ASSERT(!interpreter.empty(), "a script that names no interpreter is run by the shell");
    if (::access(interpreter.c_str(), X_OK) == 0) return;
    const int reason = errno;
    throw ProgramError(reason == ENOENT ? kNotFound : kCannotExecute,
                       script + ": its interpreter " + interpreter + ": " + std::strerror(reason));
}

}  // namespace

std::string find_program(const std::string& name) {
    if (name.empty()) throw ProgramError(kNotFound, "the command is an empty word");
    if (name.find('/') != std::string::npos) {
        if (::access(name.c_str(), F_OK) != 0)
            throw ProgramError(errno == ENOENT || errno == ENOTDIR ? kNotFound : kCannotExecute,
                               name + ": " + std::strerror(errno));
        if (is_directory(name)) throw ProgramError(kCannotExecute, name + ": is a directory");
        if (::access(name.c_str(), X_OK) != 0)
            throw ProgramError(kCannotExecute, name + ": " + std::strerror(errno));
        return name;
    }
    const char* variable = std::getenv("PATH");
    const std::string path = variable ? variable : "/bin:/usr/bin";
    std::string not_executable;
    for (std::size_t begin = 0; begin <= path.size();) {
        std::size_t end = path.find(':', begin);
        if (end == std::string::npos) end = path.size();
        std::string candidate = end > begin ? path.substr(begin, end - begin) : ".";
        candidate.append("/").append(name);
        begin = end + 1;
        if (::access(candidate.c_str(), F_OK) != 0 || is_directory(candidate)) continue;
        if (::access(candidate.c_str(), X_OK) == 0) return candidate;
        if (not_executable.empty()) not_executable = candidate;
    }
    if (!not_executable.empty())
        throw ProgramError(kCannotExecute, not_executable + ": " + std::strerror(EACCES));
    throw ProgramError(kNotFound, name + ": command not found");
}

void check_preloadable(const std::string& program) {
    std::string path = program;
    for (int depth = 0; depth <= kMaxInterpreters; ++depth) {
        const File file(path);
        if (!file.is_open()) return;
        const std::string head = file.read(0, sizeof(Elf64_Ehdr) > 256 ? sizeof(Elf64_Ehdr) : 256);
        if (head.starts_with("#!")) {
            path = script_interpreter(head);
            if (path.empty()) return;
            check_script_interpreter(program, path);
            continue;
        }
        if (head.size() < sizeof(Elf64_Ehdr) || !head.starts_with(ELFMAG)) return;
        Elf64_Ehdr header;
        std::memcpy(&header, head.data(), sizeof header);
        if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine)
            refuse(path, std::string("is a program for another architecture, and libsofthca.so is "
                                     "for 64-bit ") +
                             kMachineName + ": it cannot be preloaded there.");
        check_privileges(path);
        check_interpreter(path, file, header);
        return;
    }
}

std::string preloaded_without(std::string_view list,
                              std::initializer_list<std::string_view> names) {
    std::string kept;
    while (!list.empty()) {
        const std::string_view entry = list.substr(0, list.find_first_of(": "));
        list.remove_prefix(std::min(entry.size() + 1, list.size()));
        const std::string_view name = entry.substr(entry.rfind('/') + 1);
        if (entry.empty() || std::find(names.begin(), names.end(), name) != names.end()) continue;
        kept.append(kept.empty() ? "" : ":").append(entry);
    }
    return kept;
}

int execute(const std::string& path, char* const* arguments) {
    HEDDLE_ASSERT(!path.empty() && arguments[0] != nullptr, "a program has its name as argument 0");
    const bool is_elf = File(path).read(0, SELFMAG) == std::string_view(ELFMAG, SELFMAG);
    is_elf ? ::execv(path.c_str(), arguments) : ::execvp(path.c_str(), arguments);
    return errno;
}

}  // namespace cli_common
