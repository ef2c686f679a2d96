/* LAMMPS' headers name three things of the library {fmt} in inline functions, which are not called
 * here. Packages of LAMMPS leave its copy of that library out, and its functions do not fit others:
 * where there is none beside the headers, this declares what they name. */
#ifndef TESTS_ORACLE_FMT_H
#define TESTS_ORACLE_FMT_H

namespace fmt {
class string_view;
class format_args;
template <typename... Args, typename S, typename... Given>
format_args make_args_checked(const S &format, const Given &...given);
} // namespace fmt

#endif
